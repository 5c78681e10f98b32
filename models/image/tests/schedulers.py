"""Write schedulers.jsonl: runs of the schedulers of diffusers, with which schedulers.rs compares the crate.

Run by hand, with diffusers 0.42.1 and PyTorch:

    python models/image/tests/schedulers.py

Each line of the file holds a configuration as text, the short name of a scheduler or null, and runs. A run holds the number of
steps, the strength or null, the timesteps, the standard deviation of the first latent, the weights of `add_noise` at the first
timestep, and the latent after every step. A latent has 4 elements. The model and the noises are the formulas below.
"""

import json
import math
import os
import warnings

warnings.filterwarnings("ignore")

import diffusers
import numpy as np
import torch

diffusers.utils.logging.set_verbosity_error()

SIZE = 4
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000}
V = {"prediction_type": "v_prediction"}
RUNS = [(1, None), (2, None), (4, None), (7, None), (20, None), (7, 0.5), (20, 0.3)]
FEW = [(2, None), (7, None), (16, 0.6)]

NAMES = {
    "pndm": ("PNDMScheduler", {}),
    "ddim": ("DDIMScheduler", {}),
    "euler": ("EulerDiscreteScheduler", {}),
    "euler-a": ("EulerAncestralDiscreteScheduler", {}),
    "dpm++2m": ("DPMSolverMultistepScheduler", {}),
    "dpm++2m-karras": ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
    "lcm": ("LCMScheduler", {}),
}


def noise(step):
    """Return the noise of a step, or of the first latent if the step is 0."""
    return torch.tensor([1.2 * math.sin(1.7 * j + 2.3 * step + 0.4) for j in range(SIZE)], dtype=torch.float32)


def model(latent, timestep):
    """Return the output of the fake model."""
    wave = [0.3 * math.sin(j + float(timestep) / 100.0) for j in range(SIZE)]
    return 0.5 * latent + torch.tensor(wave, dtype=torch.float32)


def original():
    """Return the clean latent of a run with a strength."""
    return torch.tensor([math.cos(0.9 * j) for j in range(SIZE)], dtype=torch.float32)


def short(value):
    """Return a number with 7 significant digits."""
    return float(f"{float(value):.7g}")


def run(scheduler, steps, strength):
    """Run a scheduler and return what it computed."""
    step_index = [0]
    module = __import__(type(scheduler).__module__, fromlist=["randn_tensor"])
    module.randn_tensor = lambda *a, **k: noise(step_index[0] + 1)
    scheduler.set_timesteps(steps)
    timesteps = scheduler.timesteps
    start = 0
    if strength is not None:
        start = max(steps - min(int(steps * strength), steps), 0)
        timesteps = timesteps[start:]
    if hasattr(scheduler, "set_begin_index"):
        scheduler.set_begin_index(start)
    zeros, ones = torch.zeros(SIZE), torch.ones(SIZE)
    first = timesteps[:1]
    weights = [scheduler.add_noise(ones, zeros, first)[0], scheduler.add_noise(zeros, ones, first)[0]]
    initial = float(scheduler.init_noise_sigma)
    x = initial * noise(0) if strength is None else scheduler.add_noise(original(), noise(0), first)
    latents = []
    for index, timestep in enumerate(timesteps):
        step_index[0] = index
        output = model(scheduler.scale_model_input(x, timestep), timestep)
        x = scheduler.step(output, timestep, x, return_dict=False)[0]
        latents.append([short(v) for v in x])
    exact = [float(str(np.float32(t))) for t in timesteps.numpy()]
    return {
        "steps": steps,
        "strength": strength,
        "timesteps": [int(t) if t == int(t) else t for t in exact],
        "initial_noise": short(initial),
        "add_noise": [short(w) for w in weights],
        "latents": latents,
    }


def cases():
    """Yield configurations, short names and runs."""
    pndm = {"_class_name": "PNDMScheduler", "skip_prk_steps": True, "set_alpha_to_one": False, "steps_offset": 1, **SD}
    yield pndm, None, RUNS
    yield {**pndm, **V}, None, FEW
    yield {**pndm, "timestep_spacing": "linspace", "steps_offset": 0}, None, FEW
    yield {**pndm, "timestep_spacing": "trailing", "set_alpha_to_one": True, "steps_offset": 0}, None, FEW
    ddim = {"_class_name": "DDIMScheduler", "clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1, **SD}
    yield ddim, None, RUNS
    yield {**ddim, **V}, None, FEW
    yield {**ddim, "prediction_type": "sample"}, None, FEW
    yield {**ddim, **V, "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}, None, RUNS
    yield {**ddim, "timestep_spacing": "linspace"}, None, FEW
    yield {"_class_name": "DDIMScheduler"}, None, RUNS
    yield {"_class_name": "DDIMScheduler", "clip_sample_range": 0.8, "beta_schedule": "squaredcos_cap_v2"}, None, FEW
    trained = [0.001 + 0.02 * i / 50 for i in range(50)]
    yield {"_class_name": "DDIMScheduler", "num_train_timesteps": 50, "trained_betas": trained}, None, FEW
    euler = {"_class_name": "EulerDiscreteScheduler", **SD}
    yield euler, None, RUNS
    yield {**euler, "timestep_spacing": "leading", "steps_offset": 1}, None, RUNS
    yield {**euler, **V, "timestep_spacing": "trailing"}, None, FEW
    yield {**euler, **V, "timestep_spacing": "trailing", "rescale_betas_zero_snr": True}, None, FEW
    yield {**euler, "prediction_type": "sample"}, None, FEW
    yield {**euler, "use_karras_sigmas": True}, None, RUNS
    yield {**euler, "use_karras_sigmas": True, "sigma_min": 0.05, "sigma_max": 10.0}, None, FEW
    yield {**euler, "use_exponential_sigmas": True, "final_sigmas_type": "sigma_min"}, None, FEW
    yield {**euler, "interpolation_type": "log_linear"}, None, FEW
    yield {**euler, **V, "timestep_type": "continuous", "use_karras_sigmas": True}, None, FEW
    ancestral = {"_class_name": "EulerAncestralDiscreteScheduler", **SD}
    yield ancestral, None, RUNS
    yield {**ancestral, **V, "timestep_spacing": "trailing", "rescale_betas_zero_snr": True}, None, FEW
    yield {**ancestral, "timestep_spacing": "leading", "steps_offset": 1}, None, FEW
    dpm = {"_class_name": "DPMSolverMultistepScheduler", "lambda_min_clipped": -math.inf, **SD}
    yield dpm, None, RUNS
    yield {**dpm, "use_karras_sigmas": True}, None, RUNS
    yield {**dpm, "use_exponential_sigmas": True}, None, FEW
    yield {**dpm, "use_lu_lambdas": True}, None, FEW
    yield {**dpm, **V, "timestep_spacing": "leading", "steps_offset": 1}, None, FEW
    yield {**dpm, **V, "timestep_spacing": "trailing", "rescale_betas_zero_snr": True}, None, FEW
    yield {**dpm, "solver_order": 1}, None, FEW
    yield {**dpm, "solver_order": 3, "final_sigmas_type": "sigma_min"}, None, RUNS
    yield {**dpm, "solver_order": 3, "algorithm_type": "sde-dpmsolver++"}, None, FEW
    yield {**dpm, "algorithm_type": "sde-dpmsolver++"}, None, RUNS
    yield {**dpm, "algorithm_type": "sde-dpmsolver++", "solver_type": "heun", "euler_at_final": True}, None, FEW
    noise_based = {**dpm, "algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}
    yield noise_based, None, RUNS
    yield {**noise_based, **V, "solver_type": "heun", "lower_order_final": False}, None, FEW
    yield {**noise_based, "solver_order": 3, "prediction_type": "sample"}, None, FEW
    yield {**noise_based, "algorithm_type": "sde-dpmsolver"}, None, FEW
    yield {**noise_based, "algorithm_type": "sde-dpmsolver", "solver_type": "heun"}, None, FEW
    yield {**dpm, "solver_type": "heun", "final_sigmas_type": "sigma_min"}, None, FEW
    cosine = {**dpm, "beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1}
    yield cosine, None, FEW
    yield {**cosine, "timestep_spacing": "trailing", "use_karras_sigmas": True}, None, FEW
    yield {**cosine, "timestep_spacing": "trailing"}, None, FEW
    lcm = {"_class_name": "LCMScheduler", **SD}
    yield lcm, None, RUNS
    yield {**lcm, **V, "clip_sample": True, "clip_sample_range": 0.7, "original_inference_steps": 37}, None, FEW
    yield {**lcm, "prediction_type": "sample", "timestep_scaling": 2.0}, None, FEW
    for name in NAMES:
        yield pndm, name, FEW
    yield {**euler, "sigma_min": 0.05, "sigma_max": 10.0, "timestep_spacing": "leading"}, "dpm++2m-karras", FEW
    yield {**ddim, "_class_name": "DDPMScheduler", "variance_type": "fixed_small"}, "dpm++2m", FEW


def main():
    path = os.path.join(os.path.dirname(__file__), "schedulers.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for config, name, runs in cases():
            class_name, fixed = NAMES[name] if name else (config["_class_name"], {})
            scheduler = getattr(diffusers, class_name).from_config(config, **fixed)
            line = {"config": json.dumps(config), "name": name, "runs": [run(scheduler, *r) for r in runs]}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


main()
