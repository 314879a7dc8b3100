"""Audio datasets: sources, clips, durations, labels, and what they add up to."""
