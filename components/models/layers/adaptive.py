"""Tied embedding and softmax, in clusters of decreasing frequency for large vocabularies.

Grave, Joulin, Cisse, Grangier and Jegou 2017 (Efficient softmax approximation for GPUs); Baevski and Auli 2019
(Adaptive Input Representations) for narrower vectors of rare pieces. With clusters C_0 (the most frequent pieces), ...:

    p(w) = softmax([E_0; G] x)_w  for w in C_0          p(w) = softmax([E_0; G] x)_{C_i} softmax(E_i x)_w  for w in C_i

where G has a row for every cluster but the first. The loss computes a rare cluster only for the targets in it. With
`divide`, the rows of cluster i have width D / divide^i, and a projection P_i is used in the softmax and the embedding.
The published weights of Transformer-XL have another P_0 in the softmax (`output_projection`).

The vocabulary must be sorted by frequency, as word vocabularies are.

Shape suffixes: N targets, D model width, W width of a cluster's rows, R targets in a cluster, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.host import move, on_host
from components.models.layers.softmax import linear_cross_entropy, remapped


class TiedVocabulary(nn.Module):
    """Embeddings and logits from the same tables.

    Args:
        cutoffs: first id of every cluster after the first, increasing; those beyond the vocabulary are ignored.
        divide: factor between the widths of consecutive clusters.
        output_projection: whether the softmax multiplies x by a matrix (D, D) of its own before the first cluster.
        std: of the initial rows.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        cutoffs: Sequence[int] = (),
        divide: int = 1,
        output_projection: bool = False,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        self.cutoffs, self.divide, self.width = tuple(cutoffs), divide, width
        #: First id of every cluster, and V.
        self.bounds = [0, *(cutoff for cutoff in self.cutoffs if cutoff < vocabulary), vocabulary]
        clusters = len(self.bounds) - 1
        widths = [max(1, width // divide**index) for index in range(clusters)]
        self.tables = nn.ParameterList(
            torch.empty(high - low, size) for low, high, size in zip(self.bounds, self.bounds[1:], widths, strict=False)
        )
        self.projections = nn.ParameterList(torch.empty(size, width) for size in widths if divide > 1 and clusters > 1)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        if clusters > 1:
            self.cluster = nn.Parameter(torch.empty(clusters - 1, widths[0]))
            self.cluster_bias = nn.Parameter(torch.zeros(clusters - 1))
            nn.init.normal_(self.cluster, std=std)
        self.output_projection = nn.Parameter(torch.eye(width)) if output_projection else None
        for table in self.tables:
            nn.init.normal_(table, std=std)
        for projection in self.projections:
            # Preserves the std of the rows.
            nn.init.normal_(projection, std=len(projection) ** -0.5)

    @property
    def clusters(self) -> int:
        return len(self.tables)

    def embedding_parameters(self) -> list[nn.Parameter]:
        """The parameters of `embed`, tables first."""
        return [*self.tables, *self.projections]

    def embed(self, tokens: Tensor) -> Tensor:
        """(...) ids -> (..., D). Every cluster looks up all ids, which is cheaper than selecting its own."""
        if self.clusters == 1:
            return F.embedding(tokens, self.tables[0])
        result = None
        for index, table in enumerate(self.tables):
            inside = tokens - self.bounds[index]
            rows = self._widened(F.embedding(inside.clamp(0, len(table) - 1), table), index)
            result = rows if result is None else torch.where((inside >= 0).unsqueeze(-1), rows, result)
        assert result is not None
        return result

    def loss_sum(self, x_ND: Tensor, targets_N: Tensor) -> Tensor:
        """Sum of -log p(target), in nats. With clusters, the sizes of the matrix products depend on the targets: on a
        GPU the host waits for the device unless it knows the targets (`layers.host`)."""
        if self.clusters == 1:
            return linear_cross_entropy(self._narrowed(x_ND, 0), self.tables[0], self.bias, targets_N)
        first = self.bounds[1]
        known_N, device = on_host(targets_N).contiguous(), targets_N.device
        cluster_N = torch.bucketize(known_N, torch.tensor(self.bounds[1:-1]), right=True)
        head_N = move(torch.where(cluster_N == 0, known_N, first - 1 + cluster_N), device)
        total = linear_cross_entropy(self._narrowed(x_ND, 0), *self._head(), head_N)
        order_N, counts = cluster_N.argsort(stable=True), cluster_N.bincount(minlength=self.clusters).tolist()
        rows = move(order_N, device).split(counts)
        inside = move(known_N[order_N], device).split(counts)
        for index in range(1, self.clusters):
            # A cluster without targets adds 0, so that its gradients exist and can be averaged with other workers'.
            low, high = self.bounds[index : index + 2]
            x_RW = self._narrowed(x_ND.index_select(0, rows[index]), index)
            total = total + linear_cross_entropy(x_RW, self.tables[index], self.bias[low:high], inside[index] - low)
        return total

    def logits(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., V), float32; with clusters, log probabilities."""
        x = x.to(self.bias.dtype)
        if self.clusters == 1:
            return F.linear(self._narrowed(x, 0), self.tables[0], self.bias).float()
        head = F.linear(self._narrowed(x, 0), *self._head()).float().log_softmax(-1)
        first = self.bounds[1]
        parts = [head[..., :first]]
        for index in range(1, self.clusters):
            low, high = self.bounds[index : index + 2]
            inside = F.linear(self._narrowed(x, index), self.tables[index], self.bias[low:high]).float()
            parts.append(head[..., first + index - 1, None] + inside.log_softmax(-1))
        return torch.cat(parts, dim=-1)

    @torch.no_grad()
    def set_bias(self, log_frequencies: Tensor) -> None:
        """Set the biases so that x = 0 has these log probabilities (V,), normalised."""
        self.bias.copy_(log_frequencies)
        for index in range(1, self.clusters):
            self.cluster_bias[index - 1] = log_frequencies[self.bounds[index] : self.bounds[index + 1]].logsumexp(0)

    @torch.no_grad()
    def remapped(self, rows: Tensor) -> TiedVocabulary:
        """A copy for another vocabulary: new row i is old row `rows[i]`, or the mean of all old rows if that is -1.

        Clusters are ranges of ids of the new vocabulary, which is sorted by its own frequencies, so a piece may move to
        another cluster. With projections, its new row is the least-squares fit to its old vector of width D.

        Args:
            rows: (new V,) int64.
        """
        rows = rows.to(self.bias.device)
        with torch.random.fork_rng(devices=[]):
            # Only new clusters keep these random weights; the fixed seed makes them equal on all workers and after a
            # resume.
            torch.manual_seed(0)
            new = TiedVocabulary(
                len(rows),
                self.width,
                cutoffs=self.cutoffs,
                divide=self.divide,
                output_projection=self.output_projection is not None,
            ).to(self.bias)
        new.bias = remapped(self.bias, rows)
        for index in range(min(self.clusters, new.clusters) - 1):
            new.cluster[index], new.cluster_bias[index] = self.cluster[index], self.cluster_bias[index]
        for old, projection in zip(self.projections, new.projections, strict=False):
            projection.copy_(old)
        if self.output_projection is not None and new.output_projection is not None:
            new.output_projection.copy_(self._output_for(new))
        wide_VD = remapped(self.embed(torch.arange(len(self.bias), device=rows.device)), rows)
        for index, table in enumerate(new.tables):
            table[:] = new._nearest(wide_VD[new.bounds[index] : new.bounds[index + 1]], index)
        return new

    def _output_for(self, new: TiedVocabulary) -> Tensor:
        """The output projection of a remapped vocabulary, which keeps the logits."""
        assert self.output_projection is not None
        if self.projections and not new.projections:
            return torch.linalg.pinv(self.projections[0].float()) @ self.output_projection.float()
        if new.projections and not self.projections:
            return new.projections[0] @ self.output_projection
        return self.output_projection

    def _head(self) -> tuple[Tensor, Tensor]:
        return torch.cat([self.tables[0], self.cluster]), torch.cat([self.bias[: self.bounds[1]], self.cluster_bias])

    def _widened(self, rows: Tensor, index: int) -> Tensor:
        return rows @ self.projections[index] if self.projections else rows

    def _narrowed(self, x: Tensor, index: int) -> Tensor:
        if index == 0 and self.output_projection is not None:
            return F.linear(x, self.output_projection)
        return F.linear(x, self.projections[index]) if self.projections else x

    def _nearest(self, wide: Tensor, index: int) -> Tensor:
        if not self.projections:
            return wide.to(self.bias.dtype)
        return (wide.float() @ torch.linalg.pinv(self.projections[index].float())).to(self.bias.dtype)
