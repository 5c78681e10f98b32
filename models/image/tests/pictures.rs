//! Picture files, previews and terminal output.

use std::fs;
use std::path::PathBuf;

use drift_image::{Picture, preview, to_ansi};

/// Folder for the files of one test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("drift-image-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Picture with a gradient.
fn gradient(width: u32, height: u32) -> Picture {
    let pixels = (0..width * height).flat_map(|i| [(i % width * 8) as u8, (i / width * 8) as u8, 100]);
    Picture { width, height, rgb: pixels.collect() }
}

#[test]
fn png_round_trip_keeps_pixels_and_texts() {
    let folder = Folder::new("png");
    let path = folder.0.join("picture.png");
    let picture = gradient(31, 17);
    let texts = [("prompt", "the red cat, \u{e9}"), ("negative prompt", "\u{732b}"), ("seed", "7")];
    for _ in 0..2 {
        picture.write_png(&path, &texts).unwrap();
    }
    assert_eq!(Picture::read(&path).unwrap(), picture);
    assert_eq!(fs::read(&path).unwrap(), picture.encode_png(&texts).unwrap());
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    let file = fs::File::open(&path).unwrap();
    let reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    let latin: Vec<_> =
        reader.info().uncompressed_latin1_text.iter().map(|t| (&*t.keyword, &*t.text)).collect();
    assert_eq!(latin, [texts[0], texts[2]]);
    let other = &reader.info().utf8_text[0];
    assert_eq!((&*other.keyword, &*other.get_text().unwrap()), texts[1]);
}

#[test]
fn jpeg_and_webp_files_are_read() {
    let picture = gradient(32, 24);
    let image = image::RgbImage::from_raw(32, 24, picture.rgb.clone()).unwrap();
    for (format, tolerance) in [(image::ImageFormat::Jpeg, 40), (image::ImageFormat::WebP, 0)] {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        let read = Picture::decode(bytes.get_ref(), "picture").unwrap();
        assert_eq!((read.width, read.height), (32, 24));
        let largest = read.rgb.iter().zip(&picture.rgb).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(largest <= Some(tolerance), "{format:?}: {largest:?}");
    }
}

#[test]
fn unreadable_files_are_errors_with_their_path() {
    let folder = Folder::new("errors");
    let path = folder.0.join("absent.png");
    let error = Picture::read(&path).unwrap_err();
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    assert!(error.help().is_some());
    fs::write(&path, b"text").unwrap();
    assert!(Picture::read(&path).is_err());
    let png = gradient(16, 16).encode_png(&[]).unwrap();
    for length in 0..png.len() - 12 {
        assert!(Picture::decode(&png[..length], "picture").is_err(), "{length}");
    }
    let unwritable = gradient(4, 4).write_png(&folder.0.join("absent/picture.png"), &[]).unwrap_err();
    assert!(unwritable.to_string().contains("absent/picture.png"), "{unwritable}");
}

#[test]
fn large_pictures_are_errors() {
    let picture = Picture { width: 20_000, height: 4, rgb: vec![0; 240_000] };
    let error = Picture::decode(&picture.encode_png(&[]).unwrap(), "wide.png").unwrap_err().to_string();
    assert!(error.starts_with("wide.png: "), "{error}");
    assert!(picture.resized(0, 4).is_err());
    assert!(picture.resized(4, 20_000).is_err());
}

#[test]
fn inconsistent_pictures_are_errors() {
    let short = Picture { width: 4, height: 4, rgb: vec![0; 47] };
    assert!(short.resized(2, 2).is_err());
    assert!(short.encode_png(&[]).is_err());
    assert_eq!(to_ansi(&short, 4), "");
    let empty = Picture { width: 0, height: 0, rgb: Vec::new() };
    assert!(empty.resized(2, 2).is_err());
    assert!(empty.encode_png(&[]).is_err());
    assert_eq!(to_ansi(&empty, 80), "");
    assert!(gradient(2, 2).encode_png(&[("", "no keyword")]).is_err());
    assert!(gradient(2, 2).encode_png(&[("\u{732b}", "no Latin keyword")]).is_err());
    assert!(gradient(2, 2).encode_png(&[("prompt", "a\0b")]).is_ok());
}

#[test]
fn resizing_and_gray() {
    let flat = Picture { width: 8, height: 4, rgb: [200, 10, 50].repeat(32) };
    let resized = flat.resized(3, 5).unwrap();
    assert_eq!((resized.width, resized.height), (3, 5));
    assert_eq!(resized.rgb, [200, 10, 50].repeat(15));
    // Values of the mode "L" of Pillow.
    let colors =
        Picture { width: 5, height: 1, rgb: vec![200, 10, 50, 255, 255, 255, 0, 0, 0, 0, 255, 0, 1, 1, 1] };
    assert_eq!(colors.gray(), [71, 255, 0, 150, 1]);
}

#[test]
fn previews_show_latents() {
    let mut latent = vec![0.0; 4 * 6];
    latent[..6].fill(1.0);
    latent[5] = f32::NAN;
    let picture = preview(&latent, 4, 2, 3);
    assert_eq!((picture.width, picture.height), (3, 2));
    assert_eq!(picture.rgb[..3], [165, 154, 154]);
    assert_eq!(picture.rgb[15..], [0, 0, 0]);
    assert_eq!(preview(&[9.0; 2], 1, 1, 2).rgb, [255; 6]);
    for (channels, height, width) in [(4, 2, 4), (0, 2, 3), (4, 0, 3), (4, usize::MAX, 2)] {
        let empty = preview(&latent, channels, height, width);
        assert_eq!((empty.width, empty.height, empty.rgb.len()), (0, 0, 0));
    }
}

#[test]
fn terminals_show_two_pixels_a_character() {
    let picture = Picture { width: 1, height: 2, rgb: vec![1, 2, 3, 4, 5, 6] };
    assert_eq!(to_ansi(&picture, 1), "\x1b[38;2;1;2;3m\x1b[48;2;4;5;6m\u{2580}\x1b[0m\n");
    let text = to_ansi(&gradient(32, 32), 20);
    assert_eq!(text.lines().count(), 10);
    assert_eq!(text.matches('\u{2580}').count(), 200);
    assert_eq!(to_ansi(&picture, 0), "");
}
