package analytic

// What cuDNN takes for a convolution beside its result. NVIDIA does not publish its heuristics; the rule is that of the
// trace (python/asrconfig_go/trace/_convolution_workspaces.py), from what its documentation says of tensor cores.

const (
	cudnn              = "cuDNN workspace"
	cudnnSource        = "aten/src/ATen/native/cudnn/Conv_v8.cpp; the size is a rule of ours"
	tensorCoreChannels = 8
	cudnnTableBytes    = 16384 // of 32-bit convolutions, forward
)

// takeConvolution takes the workspace of a forward pass, and gives its row for each gradient of the backward pass; none without.
func (t *tracker) takeConvolution(in, w, y value, groups int64) int32 {
	if groups > 1 && groups == in.shape[1].n && !t.depthwiseByCuDNN(in, w, y) {
		return none
	}
	bytes, row := int64(cudnnTableBytes), int32(none)
	if in.kind == halves {
		bytes = (in.shape.elements() + w.shape.elements() + y.shape.elements()) * halves.bytes()
		if in.shape[1].n < tensorCoreChannels {
			return none
		}
	}
	s := of(dim{"workspace", bytes})
	t.release(t.allocate(cudnn, s, bools, workspaces, cudnnSource))
	if in.kind == halves {
		row = t.rowFor(cudnn, scratch, s, bools, cudnnSource)
	}
	return row
}

// depthwiseByCuDNN tells whether cuDNN runs a depthwise convolution, and not torch's own kernel, which takes nothing:
// use_cudnn_depthwise in aten/src/ATen/native/Convolution.cpp. One over time is over an image of one row there.
func (t *tracker) depthwiseByCuDNN(in, w, y value) bool {
	if !t.low || t.bfloat || in.shape[1].n < 32 {
		return false
	}
	across, last := in.shape.rank()-2, in.shape.rank()-1
	strided := y.shape[last].n <= in.shape[last].n/2+1
	if across == 1 {
		return !strided
	}
	taps, width, channels := w.shape[last].n, in.shape[last].n, in.shape[1].n
	switch {
	case w.shape[across].n != taps || taps != 1 && taps != 3 && taps != 5 || width < 7:
		return false
	case !strided:
		return true
	case in.shape[0].n == 1:
		return taps > 1 || width <= 28
	}
	return taps > 1 && (channels >= 512 || channels >= 256 && width >= 28)
}
