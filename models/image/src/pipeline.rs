//! Makes pictures with a bundle on a device.
//!
//! ```text
//! encode -> [encode_image] -> start -> (noise -> denoise) for each step -> decode
//! ```
//!
//! The latent stays on the device. The host sends the coefficients of each step, and the noise of schedulers that draw some.
//! Random numbers are drawn in the order of diffusers' pipelines, so that a seed gives the same picture.

use std::path::Path;
use std::time::{Duration, Instant};

use drift_runtime::{Array, ArrayRef, Bundle, Options, Session};

use crate::model::{Model, prompt_encoders, scheduler};
use crate::request::{ImageRequest, Settings};
use crate::{Error, Picture, PromptEncoder, Result, Schedule, Step, TorchGenerator};

/// Pixels of a mask from this value on are white.
const WHITE: u8 = 128;

/// Diffusion model on a device, with its tokenizers.
pub struct ImagePipeline {
    session: Session,
    model: Model,
    encoders: Vec<PromptEncoder>,
}

/// A step that the device finished.
pub struct Progress<'a> {
    /// Index of the step, from 0.
    pub step: usize,
    /// Number of steps that run.
    pub steps: usize,
    /// Time that the step took.
    pub took: Duration,
    /// Copies the latent from the device on request.
    session: &'a mut Session,
}

impl Progress<'_> {
    /// Returns the latent after this step and its shape `[1, channels, height, width]`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn latent(&mut self) -> Result<(Vec<f32>, Vec<usize>)> {
        read_latent(self.session)
    }
}

/// Function that is told about each step. It returns false to cancel the run.
pub type Listener<'a> = dyn FnMut(&mut Progress<'_>) -> Result<bool> + 'a;

impl ImagePipeline {
    /// Opens a bundle on a device.
    ///
    /// # Errors
    /// If the bundle cannot be loaded or has no diffusion model.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::new(Session::from_bundle(Bundle::open(path)?, options)?)
    }

    /// Creates a pipeline from a session.
    ///
    /// # Errors
    /// If the bundle has no diffusion model.
    pub fn new(session: Session) -> Result<Self> {
        let model = Model::new(&session)?;
        let encoders = prompt_encoders(&session, &model)?;
        Ok(Self { session, model, encoders })
    }

    /// Returns the session of the model.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Width and height of pictures in pixels.
    pub fn size(&self) -> (usize, usize) {
        let [height, width] = self.model.sides;
        (width, height)
    }

    /// Shape of a latent, `[1, channels, height, width]`.
    pub fn latent_shape(&self) -> [usize; 4] {
        self.model.latent
    }

    /// Returns the latent after the last step and its shape `[1, channels, height, width]`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn latent(&mut self) -> Result<(Vec<f32>, Vec<usize>)> {
        read_latent(&mut self.session)
    }

    /// Makes a picture. Also returns the settings after defaults.
    ///
    /// # Errors
    /// If the request is not possible, the device fails, the latent becomes infinite or NaN, or the listener cancels.
    pub fn run(
        &mut self,
        request: &ImageRequest,
        listener: &mut Listener<'_>,
    ) -> Result<(Picture, Settings)> {
        let defaults = self.model.defaults();
        let guidance = request.guidance.unwrap_or(defaults.guidance);
        let steps = request.steps.unwrap_or(defaults.steps);
        if !guidance.is_finite() {
            return Err(Error::Request(format!("the guidance is {guidance}; give a finite number")));
        }
        if request.mask.is_some() && request.image.is_none() {
            return Err(Error::Request("a mask needs an image; give both".into()));
        }
        if request.image.is_some() && !self.model.encodes_images {
            return Err(Error::Request(
                "the model has no VAE encoder, so it makes pictures from texts only; leave out the image, or compile a folder with `vae_encoder`".into(),
            ));
        }
        if self.model.inpaints && request.mask.is_none() {
            return Err(Error::Request(
                "the model paints parts of an image; give the image and a mask, or use a model without inpainting".into(),
            ));
        }
        let scheduler = scheduler(&self.session, &self.model, request)?;
        let schedule = scheduler.schedule(steps, request.image.as_ref().map(|_| request.strength))?;
        let guides = self.model.can_guide && guidance > 1.0;
        let cut = self.encode(request, guides)?;
        let mut generator = TorchGenerator::new(request.seed);
        self.start(request, &schedule, &mut generator)?;
        self.denoise(&schedule, guidance, guides, &mut generator, listener)?;
        let settings = Settings { steps, guidance, scheduler: scheduler.class(), cut };
        Ok((self.decode()?, settings))
    }

    /// Runs the text encoders. Returns the ends of prompts that were cut off.
    fn encode(&mut self, request: &ImageRequest, guides: bool) -> Result<Vec<String>> {
        let negative = request.negative_prompt.as_deref().unwrap_or_default();
        let mut cut = Vec::new();
        let mut inputs: Vec<(String, Array)> = Vec::new();
        for (index, encoder) in self.encoders.iter().enumerate() {
            let mut ids = Vec::new();
            for text in [negative, &request.prompt] {
                let encoded = encoder.encode(text)?;
                ids.extend(encoded.ids);
                cut.extend(encoded.cut.filter(|_| index == 0));
            }
            let name = if index == 0 { "ids".to_owned() } else { format!("ids_{}", index + 1) };
            inputs.push((name, Array::from_i32(&[2, self.model.tokens], &ids)));
        }
        if self.model.has_time_ids {
            let [height, width] = self.model.sides.map(|side| side as f32);
            let ids = [height, width, 0.0, 0.0, height, width];
            inputs.push(("time_ids".to_owned(), Array::from_f32(&[2, 6], &[ids, ids].concat())));
            let is_empty = request.negative_prompt.is_none() && self.model.zeros_for_empty;
            let scales = [if guides && is_empty { 0.0 } else { 1.0 }, 1.0];
            inputs.push(("prompt_scales".to_owned(), Array::from_f32(&[2], &scales)));
        }
        let inputs: Vec<(&str, ArrayRef<'_>)> =
            inputs.iter().map(|(name, array)| (name.as_str(), array.as_ref())).collect();
        self.session.run("encode", &inputs)?;
        Ok(cut)
    }

    /// Draws the first noise and sets the states of a new picture.
    fn start(
        &mut self,
        request: &ImageRequest,
        schedule: &Schedule,
        generator: &mut TorchGenerator,
    ) -> Result<()> {
        let shape = self.model.latent;
        let [_, channels, height, width] = shape;
        let elements = self.model.latent_elements();
        let mut image = vec![0.0; elements];
        let mut masked_image = vec![0.0; elements];
        let mut mask = vec![1.0; height * width];
        let from_noise = request.mask.is_some() && request.strength >= 1.0;
        let mut scales = [0.0, schedule.initial_noise];
        let mut noise = None;
        if let Some(picture) = &request.image {
            let pixels = self.pixels(picture)?;
            if !from_noise || !self.model.inpaints {
                image = self.encode_image(&pixels, generator)?;
            }
            if !from_noise {
                scales = schedule.add_noise.first().copied().unwrap_or([1.0, 0.0]);
            }
            noise = Some(generator.randn(elements));
            if let Some(picture) = &request.mask {
                let white = self.white_pixels(picture)?;
                mask = self.shrunk(&white);
                let kept = |(index, value): (usize, &f32)| if white[index / 3] { 0.0 } else { *value };
                let masked: Vec<f32> = pixels.iter().enumerate().map(kept).collect();
                // diffusers encodes the masked image, and draws its noise, for all models.
                masked_image = match self.model.inpaints {
                    true => self.encode_image(&masked, generator)?,
                    false if self.model.encoder_draws => generator.randn(elements),
                    false => masked_image,
                };
            }
        }
        let noise = noise.unwrap_or_else(|| generator.randn(elements));
        let arrays = [
            ("noise", Array::from_f32(&shape, &noise)),
            ("image", Array::from_f32(&shape, &image)),
            ("mask", Array::from_f32(&[1, 1, height, width], &mask)),
            ("scales", Array::from_f32(&[2], &scales)),
            ("masked_image", Array::from_f32(&[1, channels, height, width], &masked_image)),
        ];
        let mut inputs: Vec<(&str, ArrayRef<'_>)> =
            arrays.iter().map(|(name, array)| (*name, array.as_ref())).collect();
        if !self.model.inpaints {
            inputs.pop();
        }
        self.session.run("start", &inputs)?;
        Ok(())
    }

    /// Pixels of an image in the size of the model, `[height, width, 3]` in -1 to 1.
    fn pixels(&self, picture: &Picture) -> Result<Vec<f32>> {
        let picture = self.fitted(picture)?;
        Ok(picture.rgb.iter().map(|value| 2.0 * (f32::from(*value) / 255.0) - 1.0).collect())
    }

    /// True for the white pixels of a mask in the size of the model.
    fn white_pixels(&self, picture: &Picture) -> Result<Vec<bool>> {
        Ok(self.fitted(picture)?.gray().into_iter().map(|value| value >= WHITE).collect())
    }

    fn fitted(&self, picture: &Picture) -> Result<Picture> {
        let [height, width] = self.model.sides.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
        match (picture.height, picture.width) == (height, width) {
            true => Ok(picture.clone()),
            false => picture.resized(width, height),
        }
    }

    /// Shrinks a mask to the size of the latent, by the nearest pixel.
    fn shrunk(&self, white: &[bool]) -> Vec<f32> {
        let ([_, _, height, width], [tall, wide]) = (self.model.latent, self.model.sides);
        let at = |y: usize, x: usize| white.get(y * tall / height * wide + x * wide / width) == Some(&true);
        (0..height)
            .flat_map(|y| (0..width).map(move |x| (y, x)))
            .map(|(y, x)| f32::from(u8::from(at(y, x))))
            .collect()
    }

    /// Encodes the pixels of an image to a latent.
    fn encode_image(&mut self, pixels: &[f32], generator: &mut TorchGenerator) -> Result<Vec<f32>> {
        let [height, width] = self.model.sides;
        let image = Array::from_f32(&[1, height, width, 3], pixels);
        let mut inputs = vec![("image", image.as_ref())];
        let noise = self.model.encoder_draws.then(|| generator.randn(self.model.latent_elements()));
        let noise = noise.map(|noise| Array::from_f32(&self.model.latent, &noise));
        inputs.extend(noise.as_ref().map(|noise| ("noise", noise.as_ref())));
        let outputs = self.session.run("encode_image", &inputs)?;
        Ok(outputs.first().map(floats).unwrap_or_default())
    }

    /// Runs all steps.
    fn denoise(
        &mut self,
        schedule: &Schedule,
        guidance: f32,
        guides: bool,
        generator: &mut TorchGenerator,
        listener: &mut Listener<'_>,
    ) -> Result<()> {
        let function = if guides { "denoise" } else { "denoise_unguided" };
        for (index, step) in schedule.steps.iter().enumerate() {
            let start = Instant::now();
            if step.needs_noise {
                let noise =
                    Array::from_f32(&self.model.latent, &generator.randn(self.model.latent_elements()));
                self.session.run("noise", &[("noise", noise.as_ref())])?;
            }
            let next = schedule.add_noise.get(index + 1).copied().unwrap_or([1.0, 0.0]);
            let coefficients = coefficients(step, guidance, next);
            let coefficients = Array::from_f32(&[coefficients.len()], &coefficients);
            let outputs = self.session.run(function, &[("coefficients", coefficients.as_ref())])?;
            let magnitude = outputs.first().and_then(|magnitude| floats(magnitude).first().copied());
            if !magnitude.is_some_and(f32::is_finite) {
                return Err(Error::NotFinite { step: index + 1 });
            }
            let (took, steps) = (start.elapsed(), schedule.steps.len());
            let mut progress = Progress { step: index, steps, took, session: &mut self.session };
            if !listener(&mut progress)? {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }

    /// Decodes the latent to a picture.
    fn decode(&mut self) -> Result<Picture> {
        let outputs = self.session.run("decode", &[])?;
        let rgb = outputs.into_iter().next().map(|picture| picture.bytes).unwrap_or_default();
        let [height, width] = self.model.sides.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
        Ok(Picture { width, height, rgb })
    }
}

/// Coefficients of a step in the order of the function `denoise`. `next` are the weights of the image and of the noise after
/// the step, for inpainting.
fn coefficients(step: &Step, guidance: f32, next: [f32; 2]) -> Vec<f32> {
    let mut all = vec![step.input_scale, step.timestep, guidance];
    all.extend(step.history);
    all.push(step.limit);
    all.extend(step.update);
    all.extend(next);
    all
}

fn read_latent(session: &mut Session) -> Result<(Vec<f32>, Vec<usize>)> {
    let outputs = session.run("latent", &[])?;
    let latent = outputs.into_iter().next();
    Ok(latent.map(|latent| (floats(&latent), latent.shape)).unwrap_or_default())
}

fn floats(array: &Array) -> Vec<f32> {
    array.to_f64().into_iter().map(|value| value as f32).collect()
}
