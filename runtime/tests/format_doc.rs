//! A second reader of bundles that is based only on FORMAT.md. It takes the structs from the tables of that page and
//! decodes a bundle, so a test fails if FORMAT.md and the format differ.

mod common;

use common::{encode, small_bundle};
use drift_runtime::codec::read_manifest;
use drift_runtime::format::HostType;
use drift_runtime::format::self_test::{SelfTest, TestInput, TestOutput, Vector, generate, input_seed};
use drift_runtime::format::{
    BindingKind, DeviceType, Expr, ExprOp, FEATURES, Features, Image, ImageKind, Manifest, MatrixScope,
    MatrixShape, MatrixType, SlotKind, Texture,
};
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../FORMAT.md");

/// A struct or enum that a section of FORMAT.md describes.
#[derive(Debug)]
enum Described {
    Struct(Vec<(String, String)>),
    /// An enum: maps the number of each case to the type of its payload.
    Choice(BTreeMap<u64, String>),
}

fn page() -> BTreeMap<String, Described> {
    let mut sections = BTreeMap::new();
    for section in PAGE.split("\n### ").skip(1) {
        let (name, body) = section.split_once('\n').unwrap();
        let rows: Vec<Vec<&str>> = body
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let Some(head) = rows.first() else { continue };
        let described = match head[..] {
            ["field", "type", "meaning"] => Described::Struct(
                rows[2..]
                    .iter()
                    .map(|row| (row[0].trim_matches('`').to_owned(), row[1].replace("\\<", "<")))
                    .collect(),
            ),
            ["number", "payload", ..] => {
                let each = |row: &Vec<&str>| {
                    let payload = row[1].to_owned();
                    row[0].split(", ").map(|n| (n.parse().unwrap(), payload.clone())).collect::<Vec<_>>()
                };
                Described::Choice(rows[2..].iter().flat_map(each).collect())
            }
            _ => continue,
        };
        sections.insert(name.to_owned(), described);
    }
    // The section `Expr` lists the operations.
    let operations = sections.remove("Expr").unwrap();
    sections.insert("ExprOp".to_owned(), operations);
    sections
}

struct Reader<'a> {
    page: BTreeMap<String, Described>,
    bytes: &'a [u8],
    at: usize,
    /// Every value that was read from the bundle, as `path=value`.
    log: Vec<String>,
}

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    fn number(&mut self) -> u64 {
        let length = match self.byte() {
            0xfb => 2,
            0xfc => 4,
            0xfd => 8,
            small => return small.into(),
        };
        (0..length).fold(0, |value, index| value | u64::from(self.byte()) << (8 * index))
    }

    fn read(&mut self, kind: &str, path: &str) {
        if let Some(element) = kind.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
            for index in 0..self.number() {
                self.read(element, &format!("{path}[{index}]"));
            }
        } else if let Some(inner) = kind.strip_prefix("option<").and_then(|rest| rest.strip_suffix('>')) {
            if self.byte() == 1 {
                self.read(inner, path);
            }
        } else if let Some((element, n)) = kind.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            for index in 0..n.parse::<usize>().unwrap() {
                self.read(element, &format!("{path}[{index}]"));
            }
        } else if let Some((first, second)) =
            kind.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')?.split_once(", "))
        {
            self.read(first, path);
            self.read(second, path);
        } else {
            self.read_plain(kind, path);
        }
    }

    fn read_plain(&mut self, kind: &str, path: &str) {
        let value = match kind {
            "u16" | "u32" | "u64" | "enum" => self.number().to_string(),
            "i64" => {
                let value = self.number();
                let half = i128::from(value / 2);
                if value.is_multiple_of(2) { half.to_string() } else { (-half - 1).to_string() }
            }
            "bool" => self.byte().to_string(),
            "f64" => f64::from_le_bytes(std::array::from_fn(|_| self.byte())).to_string(),
            "hash" => (0..32).map(|_| format!("{:02x}", self.byte())).collect(),
            "text" => {
                let length = usize::try_from(self.number()).unwrap();
                self.at += length;
                String::from_utf8(self.bytes[self.at - length..self.at].to_vec()).unwrap()
            }
            "Expr" => return self.read("list<ExprOp>", path),
            name => return self.read_described(name, path),
        };
        self.log.push(format!("{path}={value}"));
    }

    fn read_described(&mut self, name: &str, path: &str) {
        match self.page.get(name).unwrap_or_else(|| panic!("FORMAT.md does not describe the type `{name}`")) {
            Described::Struct(fields) => {
                for (field, kind) in fields.clone() {
                    self.read(&kind, &format!("{path}.{field}"));
                }
            }
            Described::Choice(payloads) => {
                let payloads = payloads.clone();
                let number = self.number();
                let payload = payloads.get(&number).unwrap_or_else(|| {
                    panic!("FORMAT.md lists no case with the number {number} for the enum `{name}`")
                });
                self.log.push(format!("{path}={number}"));
                if !payload.is_empty() {
                    self.read(payload, path);
                }
            }
        }
    }
}

fn read_by_format_page(kind: &str, bytes: &[u8]) -> Vec<String> {
    let mut reader = Reader { page: page(), bytes, at: 0, log: Vec::new() };
    reader.read(kind, "");
    assert_eq!(reader.at, bytes.len(), "there are more bytes than FORMAT.md describes");
    reader.log
}

/// Manifest of the small test bundle, with at least one element in every list.
fn full_manifest() -> Manifest {
    let mut manifest = read_manifest(&small_bundle()).unwrap();
    manifest.provenance.flags = vec!["--precision=f16".to_owned()];
    manifest.provenance.notes = vec![("key".to_owned(), "value".to_owned())];
    let variant = &mut manifest.variants[0];
    variant.pipelines[0].required_subgroup_size = Some(32);
    variant.requirements.features = Features(u64::MAX);
    variant.requirements.subgroup_sizes = vec![8, 1 << 20];
    variant.requirements.hints.vendor_ids = vec![0x10de];
    variant.requirements.hints.device_names = vec!["é".to_owned()];
    variant.requirements.hints.drivers = vec!["x".repeat(300)];
    variant.requirements.matrix_shapes = vec![MatrixShape {
        m: 16,
        n: 8,
        k: 4,
        a: MatrixType::I8,
        b: MatrixType::U8,
        c: MatrixType::I32,
        result: MatrixType::U64,
        scope: MatrixScope::QueueFamily,
        saturating: true,
    }];
    let function = &mut variant.functions[1];
    function.slots[0].kind = SlotKind::State(7);
    let texture = Texture { kind: ImageKind::D3, element: DeviceType::F16 };
    function.slots[1].kind = SlotKind::Image(Image { texture, extent: [3, 1 << 20, 5], chunk: Some(9) });
    variant.pipelines[2].bindings = vec![
        BindingKind::Texels(DeviceType::U32),
        BindingKind::ImageRead(texture),
        BindingKind::ImageWrite(Texture { kind: ImageKind::D2Array, ..texture }),
    ];
    use ExprOp::{Add, CeilDiv, Const, FloorDiv, Max, Min, Mod, Mul, Sub, Symbol};
    function.dispatches[0].flops =
        Expr(vec![Const(-70_000), Symbol(5), Add, Sub, Mul, FloorDiv, CeilDiv, Mod, Min, Max]);
    manifest
}

#[test]
fn format_page_describes_every_byte() {
    let manifest = full_manifest();
    let log = read_by_format_page("Manifest", &encode(&manifest));
    let dispatch = ".variants[0].functions[1].dispatches[0]";
    for expected in [
        ".provenance.compiler_version=test".to_owned(),
        ".attachments[0].name=vocabulary.txt".to_owned(),
        format!(".chunks[0].hash={}", manifest.chunks[0].hash),
        ".variants[0].pipelines[0].required_subgroup_size=32".to_owned(),
        format!(".variants[0].requirements.features={}", u64::MAX),
        ".variants[0].requirements.subgroup_sizes[1]=1048576".to_owned(),
        ".variants[0].requirements.matrix_shapes[0].result=11".to_owned(),
        ".variants[0].requirements.matrix_shapes[0].scope=3".to_owned(),
        ".variants[0].functions[1].symbols[0].max=100".to_owned(),
        ".variants[0].functions[1].slots[0].kind=7".to_owned(),
        ".variants[0].functions[1].slots[1].kind=6".to_owned(),
        ".variants[0].functions[1].slots[1].kind.texture.kind=2".to_owned(),
        ".variants[0].functions[1].slots[1].kind.extent[1]=1048576".to_owned(),
        ".variants[0].functions[1].slots[1].kind.chunk=9".to_owned(),
        ".variants[0].pipelines[2].bindings[0]=3".to_owned(),
        ".variants[0].pipelines[2].bindings[2].element=1".to_owned(),
        ".variants[0].functions[1].inputs[0].host_type=7".to_owned(),
        ".variants[0].functions[0].dispatches[1].barrier_before=1".to_owned(),
        format!("{dispatch}.flops[0]=-70000"),
        format!("{dispatch}.flops[9]=9"),
        format!("{dispatch}.label=test"),
    ] {
        assert!(
            log.contains(&expected),
            "`{expected}` is missing from the values that were read from the bundle: {log:#?}"
        );
    }
}

#[test]
fn format_page_describes_self_tests() {
    let input = TestInput { name: "x".to_owned(), shape: vec![3, 300], integers: 250 };
    let output = TestOutput {
        name: "y".to_owned(),
        elements: 900,
        mean: -0.5,
        samples: vec![1.25],
        ..TestOutput::default()
    };
    let vector = Vector {
        function: "main".to_owned(),
        seed: 1 << 40,
        relative: 1e-3,
        symbols: vec![("past".to_owned(), -7)],
        inputs: vec![input],
        outputs: vec![output],
        ..Vector::default()
    };
    let log = read_by_format_page("list<Vector>", &SelfTest { vectors: vec![vector] }.encode().unwrap());
    for expected in [
        "[0].function=main",
        "[0].seed=1099511627776",
        "[0].relative=0.001",
        "[0].symbols[0]=-7",
        "[0].inputs[0].shape[1]=300",
        "[0].inputs[0].integers=250",
        "[0].outputs[0].mean=-0.5",
        "[0].outputs[0].samples[0]=1.25",
    ] {
        assert!(log.iter().any(|value| value == expected), "{expected} is missing from {log:#?}");
    }
    let floats = generate(HostType::F32, 4, 1, input_seed(1, 0));
    let floats: Vec<String> =
        floats.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b).to_string()).collect();
    let bytes = generate(HostType::U8, 4, 250, input_seed(1, 0));
    let integers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    let example = format!(
        "For the seed 1, the first elements of input 0 are {} as floats, and {} as integers if `integers` is 250.",
        floats.join(", "),
        integers.join(", ")
    );
    assert!(PAGE.contains(&example), "FORMAT.md lacks: {example}");
}

#[test]
fn format_page_lists_every_feature() {
    for (feature, name) in FEATURES {
        assert!(PAGE.contains(&format!("| {} | {name} |", *feature as u8)), "{name}");
    }
}
