"""Spoken digits, and a model small enough for a laptop: what the demo and the tests of a recipe train on."""
