package monitor

// What training can still allocate on a GPU is what the driver has free and what PyTorch's cache holds unused. The cache is
// known as of the last step, what is free as of the newest sample, and memory moves between the two: a step that takes more
// from the driver raises both counters of PyTorch, emptying the cache gives memory back that the counters still hold as
// cache. So memory that became free since the step is taken for memory of the cache: the headroom may be told too small
// until the next step, by what another process gave back, and never too large.

// headroom is that, in bytes.
func (g *GPUStats) headroom() uint64 {
	unused := g.Reserved - min(g.Allocated, g.Reserved)
	given := g.Free - min(g.FreeAtStep, g.Free)
	return min(g.Free+unused-min(given, unused), g.Total)
}

// learn takes PyTorch's counters at a step.
func (g *GPUStats) learn(allocated, reserved uint64) {
	g.Allocated, g.Reserved, g.FreeAtStep, g.TorchValid = allocated, reserved, g.Free, true
	g.Headroom = g.headroom()
}

// refresh takes a new sample and keeps what is not part of one.
func (g *GPUStats) refresh(used, total, free uint64) {
	g.Used, g.Total, g.Free, g.Valid = used, total, free, true
	g.Peak = max(g.Peak, used)
	g.Headroom = g.headroom()
}
