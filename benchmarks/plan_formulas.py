"""Formulas of the plan for many GPUs: memory, the time of a step, the age of its rollouts.

Only the three costs marked as measured were measured; the rates of a device are its vendor's, and `Assumptions` states
the rest. `benchmarks/plan.py` makes the tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vpo_agent.policy.memory import (
    GRADIENT,
    Shape,
    cache_bytes,
    logits_bytes,
    optimizer_bytes,
    saved_bytes,
    trained_parameters,
    weight_bytes,
)

GIGA = 1e9


def dense(
    name: str,
    layers: int,
    hidden: int,
    intermediate: int,
    heads: int,
    *,
    tied: bool,
    key_heads: int = 8,
    head_width: int = 128,
    vocabulary: int = 151_936,
) -> Shape:
    """Return a dense Qwen3 model (Qwen3 Technical Report, arXiv 2505.09388, and the published configurations).

    Its parameters are the layers, the last norm, and one embedding table, or two if they are not tied.
    """
    shape = Shape(
        name, 0, layers, hidden, intermediate, heads, key_heads, head_width, vocabulary, tied=tied, head_norms=True
    )
    tables = (1 if tied else 2) * vocabulary * hidden
    return replace(shape, parameters=layers * layer_parameters(shape) + hidden + tables)


def layer_parameters(shape: Shape) -> int:
    """Count the parameters of a layer: queries and output, keys and values, the gated MLP, and four norms."""
    attention = 2 * shape.hidden * (shape.queries + shape.keys)
    return attention + 3 * shape.hidden * shape.intermediate + 2 * shape.hidden + 2 * shape.head_width


SHAPES = (
    dense("0.6B", 28, 1024, 3072, 16, tied=True),
    dense("1.7B", 28, 2048, 6144, 16, tied=True),
    dense("4B", 36, 2560, 9728, 32, tied=True),
    dense("8B", 36, 4096, 12288, 32, tied=False),
    dense("14B", 40, 5120, 17408, 40, tied=False),
    dense("32B", 64, 5120, 25600, 64, tied=False),
)


@dataclass(frozen=True)
class Device:
    """A GPU by its vendor's figures: bytes, bytes or dense bfloat16 operations per second, links in one direction."""

    name: str
    memory: float
    hbm: float
    operations: float
    nvlink: float
    network: float


DEVICES = {
    "h100": Device("H100 SXM", 80 * GIGA, 3.35e12, 989e12, 450 * GIGA, 50 * GIGA),
    "h200": Device("H200 SXM", 141 * GIGA, 4.8e12, 989e12, 450 * GIGA, 50 * GIGA),
}


@dataclass(frozen=True)
class Assumptions:
    """What the plan assumes until it is measured; shares are of the vendor's figures."""

    memory_used: float = 0.90  # share of a GPU's memory that is planned with
    hbm_reached: float = 0.70  # share of the memory bandwidth that decoding reaches
    link_reached: float = 0.70  # share of a link's rate that a transfer reaches
    mfu_decode: float = 0.50  # share of the operations that decoding reaches where they limit it
    mfu_train: float = 0.40  # share of the operations that an update reaches (MFU)
    decode_overhead: float = 0.003  # seconds of a decoding step spent on kernel launches, sampling and scheduling
    prompt: int = 500  # tokens of a prompt
    answer: int = 500  # tokens of an answer, reasoning included
    spread: float = 0.5  # standard deviation of the logarithm of a response's length, which is log-normal
    limit: float = 3.0  # longest response, in mean lengths
    micro_batch: int = 16_384  # tokens in one backward pass of a GPU
    head_tile: int = 1_024  # tokens whose logits are in memory at the same time
    updates: int = 2  # optimizer steps per batch; the paper's mini-batch is half its batch


ASSUMED = Assumptions()

# Measured by this project on one core: benchmarks/estimators.py, benchmarks/envs.py, benchmarks/sandbox.py.
ESTIMATOR_SECONDS = 1.8e-3  # VPO's weights and advantages of 128 x 8 rollouts, 3 answers, 4 objectives, 128 weights
MAZE_SECONDS = 1 / 133_000  # scoring one answer
SANDBOX_SECONDS = 0.088  # running one program on 16 short tests

TIME_LIMIT = 6.0  # seconds that a test of a program may take


# --- the model ------------------------------------------------------------------------------------------------------


def multiplied(shape: Shape) -> int:
    """Count N, the parameters that a token is multiplied with: an untied input table is only looked up."""
    return shape.parameters - (0 if shape.tied else shape.vocabulary * shape.hidden)


# --- memory ---------------------------------------------------------------------------------------------------------


def activation_bytes(shape: Shape) -> float:
    """Return the activations of a micro-batch with checkpointing: all layer inputs, one layer, one tile of logits."""
    inside = saved_bytes(shape, 2) + 4 * shape.keys
    logits = logits_bytes(shape, 2, ASSUMED.micro_batch, ASSUMED.head_tile)
    return ASSUMED.micro_batch * (2 * shape.layers * shape.hidden + inside) + logits


def whole_bytes(shape: Shape, rank: int = 0) -> int:
    """Return what the built-in trainer keeps through an update: weights, optimizer and gradients."""
    state = weight_bytes(shape, 2, rank) + optimizer_bytes(shape, 2, rank)
    return state + GRADIENT * trained_parameters(shape, rank)


def state_bytes(shape: Shape, shards: int) -> float:
    """Return what a GPU keeps between steps: its share of the weights, optimizer and gradients, and the reference.

    Sharded weights are their own float32 copies, so the 2 bytes of the model's own are the reference's.
    """
    return whole_bytes(shape) / shards if shards > 1 else whole_bytes(shape) + weight_bytes(shape, 2)


def training_bytes(shape: Shape, shards: int) -> float:
    """Return the memory of a GPU in the update: its share of the state, what FSDP has gathered, the activations.

    Two layers and the head are gathered with their gradients, 2 + 2 bytes.
    """
    gathered = 4 * (2 * layer_parameters(shape) + shape.vocabulary * shape.hidden) if shards > 1 else 0
    return state_bytes(shape, shards) + gathered + activation_bytes(shape)


def slots(shape: Shape, device: Device, *, kept: float, tensor_parallel: int, response: int) -> int:
    """Count the rollouts that one generator replica holds in the memory that weights and ``kept`` bytes a GPU leave."""
    free = ASSUMED.memory_used * device.memory - kept - weight_bytes(shape, 2) / tensor_parallel
    return max(0, int(tensor_parallel * free / (cache_bytes(shape) * (ASSUMED.prompt + response))))


def tensor_parallel(shape: Shape, device: Device) -> int:
    """Count the GPUs of one generator replica: the weights take at most half of their memory."""
    size = 1
    while weight_bytes(shape, 2) / size > device.memory / 2:
        size *= 2
    return size


# --- time -----------------------------------------------------------------------------------------------------------


def decode_seconds(shape: Shape, device: Device, rollouts: float, context: float, spread_over: int) -> float:
    """Return the time of a token for all rollouts of a replica: reading weights and caches, or 2 N operations each."""
    read = 2 * multiplied(shape) + rollouts * context * cache_bytes(shape)
    computed = 2 * multiplied(shape) * rollouts
    reading = read / (spread_over * device.hbm * ASSUMED.hbm_reached)
    return max(reading, computed / (spread_over * device.operations * ASSUMED.mfu_decode)) + ASSUMED.decode_overhead


def unfinished(tokens: float, mean: float) -> float:
    """Return the share of responses longer than ``tokens``: lengths are log-normal with the given mean."""
    if tokens <= 0:
        return 1.0
    centre = math.log(mean) - ASSUMED.spread**2 / 2
    return 0.5 * math.erfc((math.log(tokens) - centre) / (ASSUMED.spread * math.sqrt(2)))


def streamed_seconds(
    shape: Shape, device: Device, rollouts: float, room: int, response: int, spread_over: int
) -> float:
    """Return the time to generate a replica's rollouts if its slots are always full, as in an endless batch."""
    held = min(rollouts, room)
    step = decode_seconds(shape, device, held, ASSUMED.prompt + response / 2, spread_over)
    return rollouts / held * response * step


def batch_seconds(
    shape: Shape, device: Device, rollouts: float, room: int, response: int, spread_over: int, of: int
) -> float:
    """Return the same if all wait for the longest of ``of`` responses: full slots first, then ever fewer rollouts."""
    held = min(rollouts, room)
    full = streamed_seconds(shape, device, rollouts, room, response, spread_over) * (1 - held / rollouts)
    pieces = 300
    width = ASSUMED.limit * response / pieces
    tail = 0.0
    for piece in range(pieces):
        token = (piece + 0.5) * width
        share = unfinished(token, response)
        step = decode_seconds(shape, device, max(1.0, held * share), ASSUMED.prompt + token, spread_over)
        tail += width * step * (1 - (1 - share) ** of)
    return full + tail


def link(device: Device, gpus: int) -> float:
    """Return the bytes per second that a GPU receives: NVLink within eight GPUs, its network port beyond."""
    return ASSUMED.link_reached * (device.nvlink if gpus <= 8 else device.network)


def token_operations(shape: Shape, length: int, *, forwards: int, lora: bool = False) -> float:
    """Return the operations of the update per token: 6 N, 2 N for recomputation, 2 N for each further forward pass.

    Attention adds queries times keys, and weights times values, over half of ``length`` on average. LoRA saves the 2 N
    of the frozen weights' gradients.
    """
    forward = 2 * multiplied(shape) + 4 * shape.layers * shape.heads * shape.head_width * length / 2
    return (3 + 1 + forwards) * forward - (2 * multiplied(shape) if lora else 0)


def update_seconds(
    shape: Shape, device: Device, gpus: int, shards: int, rollouts: int, response: int, *, forwards: int, lora: bool
) -> float:
    """Return the time to update on a batch: computing or gathering shards, then summing gradients between groups.

    A micro-batch gathers the weights twice and scatters gradients once, 2 bytes each, and gathers once for each further
    forward pass; groups of shards sum gradients of 4 bytes around a ring, once per optimizer step.
    """
    length = ASSUMED.prompt + response
    a_gpu = math.ceil(rollouts / ASSUMED.updates / gpus) * length
    operations = a_gpu * token_operations(shape, length, forwards=forwards, lora=lora)
    computing = operations / (device.operations * ASSUMED.mfu_train)
    passes = math.ceil(a_gpu / ASSUMED.micro_batch)
    gathered = passes * (3 + forwards) * weight_bytes(shape, 2) * (1 - 1 / shards)
    groups = gpus // shards
    summed = 2 * (1 - 1 / groups) * 4 * shape.parameters / shards
    return ASSUMED.updates * (max(computing, gathered / link(device, shards)) + summed / link(device, gpus))


def transfer_seconds(shape: Shape, device: Device, spread_over: int, gpus: int) -> float:
    """Return the time to send new weights to every generator: 2 bytes per parameter of a GPU, over its slowest link."""
    return weight_bytes(shape, 2) / spread_over / link(device, gpus)


# --- a step ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A training step: its GPUs, seconds of its parts, and the age of its rollouts in steps."""

    generators: int
    trainers: int
    shards: int
    generation: float
    update: float
    transfer: float
    seconds: float
    lag: float = 0.0
    longest_lag: int = 0


def together(shape: Shape, device: Device, gpus: int, rollouts: int, response: int) -> Step | None:
    """Plan a step in which all GPUs generate, then all train, on-policy; return None if it does not fit.

    The generator sleeps during the update. A replica takes the fewest GPUs, and training the fewest shards, that leave
    room for 16 rollouts. One GPU trains all weights if they fit, else LoRA, and generates with the same weights.
    """
    usable = ASSUMED.memory_used * device.memory
    lora = gpus == 1 and training_bytes(shape, 1) > usable
    own = weight_bytes(shape, 2) if gpus == 1 else 0  # counted in the state and in the generator
    least = 1 if gpus == 1 else tensor_parallel(shape, device)
    for size in [1] if gpus == 1 else [size for size in (1, 2, 4, 8) if size >= least]:
        for shards in [1] if gpus == 1 else [shards for shards in (8, 16, 32, 64) if shards <= gpus]:
            kept = whole_bytes(shape, rank=16) - own if lora else state_bytes(shape, shards) - own
            room = slots(shape, device, kept=kept, tensor_parallel=size, response=response)
            if room < 16 or not (lora or training_bytes(shape, shards) <= usable):
                continue
            a_replica = max(1.0, rollouts * size / gpus)
            generation = batch_seconds(shape, device, a_replica, room, response, size, rollouts)
            update = update_seconds(shape, device, gpus, shards, rollouts, response, forwards=1, lora=lora)
            transfer = 0.0 if gpus == 1 else transfer_seconds(shape, device, size, shards)
            return Step(gpus, gpus, shards, generation, update, transfer, generation + update + transfer)
    return None


def apart(shape: Shape, device: Device, gpus: int, rollouts: int, response: int) -> Step | None:
    """Plan a step in which some GPUs generate while the others train, with the split that gives the shortest step.

    One batch is in flight at a time. When a rollout is trained on, its first token is as old as the rollout took to
    write, plus half a step in the buffer on average. The log-probs before the update are one more forward pass. One GPU
    cannot be split, which gives None, as does a model that fits no split.
    """
    size = tensor_parallel(shape, device)
    room = slots(shape, device, kept=0, tensor_parallel=size, response=response)
    best = None
    for trainers in range(1, gpus) if gpus <= 8 else range(8, gpus, 8):
        generators = gpus - trainers
        sizes = [s for s in (1, 2, 4, 8, 16, 32, 64) if trainers % s == 0 and s >= min(8, trainers)]
        fitting = [s for s in sizes if training_bytes(shape, s) <= ASSUMED.memory_used * device.memory]
        if generators % size or not fitting:
            continue
        a_replica = max(1.0, rollouts * size / generators)
        generation = streamed_seconds(shape, device, a_replica, room, response, size)
        update = update_seconds(shape, device, trainers, fitting[0], rollouts, response, forwards=2, lora=False)
        transfer = transfer_seconds(shape, device, size, gpus)
        seconds = max(generation, update) + transfer
        held = min(a_replica, room)
        mean = response * decode_seconds(shape, device, held, ASSUMED.prompt + response / 2, size) / seconds
        lag, longest = 0.5 + mean, math.ceil(0.5 + ASSUMED.limit * mean)
        step = Step(generators, trainers, fitting[0], generation, update, transfer, seconds, lag, longest)
        best = step if best is None or seconds < best.seconds else best
    return best


def estimator_seconds(prompts: int, rollouts: int, answers: int, objectives: int, weights: int) -> float:
    """Return the time of weights and advantages on one core, scaled from the batch that was measured."""
    return ESTIMATOR_SECONDS * (prompts * rollouts * answers * objectives * weights) / (128 * 8 * 3 * 4 * 128)
