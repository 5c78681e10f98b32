//! Networks of a diffusion model: text encoders, UNet and VAE, from a checkpoint or from ONNX files.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::graph::NodeId;

/// Number of prompts: the negative prompt, then the prompt.
pub(super) const PROMPTS: usize = 2;

/// Networks of a diffusion model, with the facts that decide its functions.
pub(super) struct Parts {
    pub(super) networks: Box<dyn Networks>,
    pub(super) text_encoders: usize,
    /// Number of tokens of a prompt.
    pub(super) tokens: usize,
    /// Height and width of pictures.
    pub(super) sides: [usize; 2],
    /// Number of pixels along each side of a picture for one pixel of the latent.
    pub(super) pixels: usize,
    pub(super) latent_channels: usize,
    /// Factor of the latent after the VAE encoder, and the shift that is subtracted before.
    pub(super) latent_scale: (f32, f32),
    /// True if the UNet takes the mask and the masked image as further channels of its input.
    pub(super) inpaints: bool,
    /// True if the UNet takes the guidance, as in latent consistency models.
    pub(super) takes_guidance: bool,
    /// True if the UNet takes the pooled text and the time ids, as in SDXL.
    pub(super) takes_time_ids: bool,
    /// True if f16 cannot hold the values inside of the VAE.
    pub(super) vae_needs_f32: bool,
    /// True if there is a VAE encoder.
    pub(super) encodes_images: bool,
}

impl Parts {
    /// Shape of the latent, `[1, channels, height, width]`.
    pub(super) fn latent(&self) -> [usize; 4] {
        let [height, width] = self.sides.map(|side| side / self.pixels);
        [1, self.latent_channels, height, width]
    }
}

/// Text that conditions the UNet.
pub(super) struct Prompts {
    /// Embedding of the tokens, `[PROMPTS, tokens, size]`.
    pub(super) embedding: NodeId,
    /// Embedding of the whole text, `[PROMPTS, size]`.
    pub(super) pooled: Option<NodeId>,
    /// Sizes of SDXL, f32 `[PROMPTS, TIME_IDS]`.
    pub(super) time_ids: Option<NodeId>,
}

/// Inputs of the UNet, except the prompts.
pub(super) struct NoiseInputs {
    /// Latent, f32 `[n, channels, height, width]` for n prompts.
    pub(super) sample: NodeId,
    /// Time step, f32 `[1]`.
    pub(super) timestep: NodeId,
    /// Guidance, f32 `[1]`.
    pub(super) guidance: NodeId,
    /// First prompt, and number of prompts.
    pub(super) prompts: (usize, usize),
}

/// Function that adds random numbers from a normal distribution, f32 with the shape of the latent.
pub(super) type Draw<'a> = dyn Fn(&mut Builder<'_>) -> Result<NodeId> + 'a;

/// Source of the networks of a diffusion model.
pub(super) trait Networks {
    /// Adds the text encoders for token ids, i32 `[PROMPTS, tokens]` for each encoder. Returns the embedding of the tokens, and
    /// the embedding of the whole text if the UNet takes it.
    ///
    /// # Errors
    /// If a weight is missing or has another shape, or an operator does not accept its operands.
    fn encode_text(&self, g: &mut Builder<'_>, ids: &[NodeId]) -> Result<(NodeId, Option<NodeId>)>;

    /// Adds the values of the UNet that depend on the prompts alone, and stores them in states.
    ///
    /// # Errors
    /// As for [`Networks::encode_text`].
    fn store_prompts(&self, g: &mut Builder<'_>, prompts: &Prompts) -> Result<()>;

    /// Adds the UNet, which reads the states of [`Networks::store_prompts`]. Returns its output, f32
    /// `[n, channels, height, width]`.
    ///
    /// # Errors
    /// As for [`Networks::encode_text`].
    fn predict_noise(&self, g: &mut Builder<'_>, inputs: &NoiseInputs) -> Result<NodeId>;

    /// Adds the VAE decoder for a latent, f32 and not scaled. Returns an image, f32 `[1, 3, height, width]` in -1 to 1.
    ///
    /// # Errors
    /// As for [`Networks::encode_text`].
    fn decode(&self, g: &mut Builder<'_>, latent: NodeId) -> Result<NodeId>;

    /// Adds the VAE encoder for an image, f32 `[1, 3, height, width]` in -1 to 1. Returns the latent, f32 and not scaled. An
    /// encoder that computes a distribution of latents calls `draw` once.
    ///
    /// # Errors
    /// As for [`Networks::encode_text`].
    fn encode_image(&self, g: &mut Builder<'_>, image: NodeId, draw: &Draw<'_>) -> Result<NodeId>;
}
