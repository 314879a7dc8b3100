package estimate

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// What a CPU does per second in float32, for each core, and what PyTorch takes for one operation:
// assumptions, chosen so that a micro-batch of a small wav2vec2 costs about what was measured
// (docs/timing.md), apart from oneDNN, which prepares a convolution again for each new length. They
// weigh micro-batches against their audio and do not predict times.
const (
	hostProducts     = 40e9 // operations
	hostConvolutions = 20e9
	hostBandwidth    = 8e9 // bytes, of all cores
	hostDispatch     = 15e-6
	hostLoop         = 0.3e-3 // of the Trainer: measured with a model of one parameter
	addedBytes       = 12     // adding a gradient to what is there reads both and writes one
)

// HostOverhead is what a micro-batch takes on a CPU besides its audio, in seconds of audio:
// dispatching its operations, accumulating its gradients, and the Trainer's loop. w is a
// micro-batch of the given padded seconds.
func HostOverhead(w kernel.Work, seconds, cores float64) float64 {
	computing, kernels := 0.0, 0.0
	for _, o := range w.Operations {
		rate := hostProducts * max(1, cores)
		if o.Kind == kernel.Convolution {
			rate = hostConvolutions * max(1, cores)
		}
		computing += o.Times * (o.FLOPs()/rate + o.Bytes()/hostBandwidth)
		kernels += o.Times * float64(o.Kernels)
	}
	fixed := hostLoop + hostDispatch*kernels +
		addedBytes*float64(w.TrainedParameters)/hostBandwidth
	if !(computing > 0) || !(seconds > 0) {
		return 0
	}
	return fixed * seconds / computing
}
