# SPDX-License-Identifier: Apache-2.0
"""Conversations + tokenizer + chat template -> token ids and loss masks in one HDF5 file (docs/reference/dataset.md)."""

VERSION = "0.1.0"
