"""A small network that learns to take noise away, by Accelerate: accumulated gradients, an average of the weights, a checkpoint every few
steps, images made at each epoch's end."""

import math
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm

import facts
import kintsugi.torch

output_dir = Path(sys.argv[1])
num_epochs, train_batch_size, gradient_accumulation_steps = 4, 4, 2
learning_rate, lr_warmup_steps, checkpointing_steps = 2e-3, 4, 5
num_train_timesteps, num_inference_steps = 20, 5


class Images(Dataset):
    def __len__(self):
        return 38

    def __getitem__(self, index):
        image = torch.linspace(-1, 1, 64, dtype=torch.float32).roll(7 * index).view(1, 8, 8)
        return {"input": image.flip(-1) if torch.rand(1) < 0.5 else image}


class ResnetBlock(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, channels_in), nn.GroupNorm(2, channels_out)
        self.conv1, self.conv2 = nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.time, self.skip, self.dropout = nn.Linear(16, channels_out), nn.Conv2d(channels_in, channels_out, 1), nn.Dropout(0.1)

    def forward(self, x, embedding):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(embedding)[:, :, None, None]
        return self.skip(x) + self.conv2(self.dropout(F.silu(self.norm2(h))))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_in, self.conv_out = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.down, self.mid, self.up = ResnetBlock(8, 16), ResnetBlock(16, 16), ResnetBlock(24, 8)

    def forward(self, sample, timesteps):
        angles = timesteps[:, None] * torch.exp(-math.log(100.0) * torch.arange(4) / 4)
        embedding = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        h = self.conv_in(sample)
        mid = self.mid(self.down(F.avg_pool2d(h, 2), embedding), embedding)
        return self.conv_out(self.up(torch.cat([F.interpolate(mid, scale_factor=2), h], dim=1), embedding))


class EMAModel:
    def __init__(self, parameters, decay=0.99, inv_gamma=1.0, power=0.75):
        self.shadow_params = [p.clone().detach() for p in parameters]
        self.decay, self.inv_gamma, self.power = decay, inv_gamma, power
        self.optimization_step, self.cur_decay_value, self.temp_stored_params = 0, None, None

    @torch.no_grad()
    def step(self, parameters):
        self.optimization_step += 1
        self.cur_decay_value = min(self.decay, 1 - (1 + self.optimization_step / self.inv_gamma) ** -self.power)
        for s_param, param in zip(self.shadow_params, parameters):
            s_param.sub_((1 - self.cur_decay_value) * (s_param - param))

    def store(self, parameters):
        self.temp_stored_params = [param.detach().clone() for param in parameters]

    def copy_to(self, parameters):
        for s_param, param in zip(self.shadow_params, parameters):
            param.data.copy_(s_param.data)

    def restore(self, parameters):
        for c_param, param in zip(self.temp_stored_params, parameters):
            param.data.copy_(c_param.data)
        self.temp_stored_params = None

    def state_dict(self):
        return {"optimization_step": self.optimization_step, "cur_decay_value": self.cur_decay_value, "shadow_params": self.shadow_params}

    def load_state_dict(self, state_dict):
        self.optimization_step, self.cur_decay_value = state_dict["optimization_step"], state_dict["cur_decay_value"]
        self.shadow_params = [p.clone() for p in state_dict["shadow_params"]]


betas = torch.linspace(1e-3, 0.2, num_train_timesteps)
alphas_cumprod = torch.cumprod(1 - betas, dim=0)


def add_noise(images, noise, timesteps):
    alpha = alphas_cumprod[timesteps][:, None, None, None]
    return alpha.sqrt() * images + (1 - alpha).sqrt() * noise


@torch.no_grad()
def log_validation(epoch):
    unet = accelerator.unwrap_model(model)
    ema_model.store(unet.parameters())
    ema_model.copy_to(unet.parameters())
    unet.eval()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 1, 8, 8, generator=generator)
    for t in reversed(range(0, num_train_timesteps, num_train_timesteps // num_inference_steps)):
        noise = unet(images, torch.full((2,), t))
        images = (images - (1 - alphas_cumprod[t]).sqrt() * noise) / alphas_cumprod[t].sqrt()
        images = images.clamp(-1, 1) + betas[t].sqrt() * torch.randn(images.shape, generator=generator) * (t > 0)
    unet.train()
    ema_model.restore(unet.parameters())
    torch.save(images, output_dir / f"samples-{epoch}.pt")


def save_model_hook(models, weights, folder):
    if accelerator.is_main_process:
        torch.save(ema_model.state_dict(), Path(folder) / "ema.pt")


def log(line):
    if accelerator.is_main_process:
        with open(output_dir / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


torch.set_num_threads(1)
run = kintsugi.torch.join()
dist.init_process_group("kintsugi")
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=gradient_accumulation_steps)
accelerator.register_save_state_pre_hook(save_model_hook)
set_seed(11)
model = UNet()
ema_model = EMAModel(model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.95, 0.999), weight_decay=1e-6, eps=1e-8)
train_dataloader = DataLoader(Images(), batch_size=train_batch_size, shuffle=True)
lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / (lr_warmup_steps * 2)) * (1 - step / 80))
model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(model, optimizer, train_dataloader, lr_scheduler)
set_seed(11, device_specific=True)
num_update_steps_per_epoch = math.ceil(len(train_dataloader) / gradient_accumulation_steps)
global_step = 0
loss = None
run.register(model=model, ema=ema_model, optimizer=optimizer, lr_scheduler=lr_scheduler, accelerator=accelerator, take_over={"ema": "rank-zero"})
run.keep(globals(), "global_step", "loss")

for epoch in range(num_epochs):
    model.train()
    progress_bar = tqdm(total=num_update_steps_per_epoch, disable=not accelerator.is_local_main_process)
    progress_bar.set_description(f"Epoch {epoch}")
    for step, batch in run.enumerate(train_dataloader):
        with run.step():
            clean_images = batch["input"]
            noise = torch.randn(clean_images.shape)
            timesteps = torch.randint(0, num_train_timesteps, (clean_images.shape[0],)).long()
            noisy_images = add_noise(clean_images, noise, timesteps)

            with accelerator.accumulate(model):
                model_output = model(noisy_images, timesteps)
                loss = F.mse_loss(model_output, noise)
                accelerator.backward(loss)
                run.report(loss=loss.item())
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()

            if accelerator.sync_gradients:
                ema_model.step(model.parameters())
                progress_bar.update(1)
                global_step += 1
        if run.again:
            continue
        if accelerator.sync_gradients:
            if global_step % checkpointing_steps == 0:
                run.do(accelerator.save_state, output_dir / f"checkpoint-{global_step}", only=0)

        logs = {"loss": loss.detach().item(), "lr": lr_scheduler.get_last_lr()[0], "ema_decay": ema_model.cur_decay_value}
        progress_bar.set_postfix(**logs)
        log(f"{epoch}/{step}/{global_step} {logs}")
    progress_bar.close()

    run.do(accelerator.wait_for_everyone)
    run.do(log_validation, epoch, only=0)

run.do(accelerator.wait_for_everyone)
checkpoints = sorted(path.name for path in output_dir.glob("checkpoint-*"))
facts.write(
    output_dir, dist.get_rank(), model=accelerator.unwrap_model(model).state_dict(), ema=ema_model.state_dict(), optimizer=optimizer.state_dict(),
    scheduler=[lr_scheduler.scheduler.last_epoch, lr_scheduler.get_last_lr()], log=facts.newest(output_dir / "log.txt"), global_step=global_step,
    saved={name: [load_file(output_dir / name / "model.safetensors"), torch.load(output_dir / name / "ema.pt")] for name in checkpoints},
    files=sorted(str(path.relative_to(output_dir)) for path in output_dir.glob("checkpoint-*/*")),
    samples=[torch.load(output_dir / f"samples-{epoch}.pt") for epoch in range(num_epochs)], last=torch.rand(1),
)  # fmt: skip
dist.destroy_process_group()
