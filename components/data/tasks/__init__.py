"""Labelled data of downstream tasks: kinds, readers, inputs and outputs, result files. Free of torch."""
