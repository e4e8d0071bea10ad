"""Frozen data passed between the layers."""
