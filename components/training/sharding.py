"""Sharded training: each worker stores its part of the weights, gradients and optimizer state (ZeRO, Rajbhandari et al.
2020; torch's `fully_shard`).

The weights of a Transformer block are gathered for its forward and backward pass only; all other weights of the model
are gathered together. Gradients are averaged and divided among the workers during the backward pass. The workers read
the same batches as without sharding and compute the same loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from torch import Tensor, nn

from components.errors import ConfigError
from components.models.base import LanguageModel
from components.models.layers.transformer import Block
from components.training.distributed import World

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

ModelT = TypeVar("ModelT", bound=LanguageModel)


def refuse_sharding(model: LanguageModel) -> None:
    """Check that a model can be trained with `cluster.sharded`.

    Raises:
        ConfigError: a table with sparse gradients.
    """
    if model.sparse_parameters():
        raise ConfigError(
            "cluster.sharded: a table with sparse gradients cannot be divided among the workers; set model.sparse: "
            "false or cluster.sharded: false"
        )


def shard(model: ModelT, world: World) -> ModelT:
    """Divide the parameters of a model among the workers, in place, if `world` asks for it. Every worker must call it
    with the same weights, before the optimizer is made."""
    if not world.sharded:
        return model
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(world.device.type, (world.size,))
    # A block that is shared by several layers stays with the rest of the model.
    for layers in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for block in layers:
            if isinstance(block, Block):
                fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "losses")
    return model


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or the whole of a tensor that is divided among the workers, who all must call this."""
    return cast("DTensor", tensor).full_tensor() if _is_divided(tensor) else tensor


def divided_like(tensor: Tensor, reference: Tensor) -> Tensor:
    """A whole tensor on the device of `reference`, divided in the same way; only this worker's part is kept."""
    tensor = tensor.to(reference.device)
    if not _is_divided(reference):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Without a source rank nothing is sent: every worker has read the whole tensor.
    like = cast("DTensor", reference)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def _is_divided(tensor: Tensor) -> bool:
    """Whether it is a DTensor, without the import of their module."""
    return hasattr(tensor, "placements")
