package batching

import "github.com/asrconfig/asrconfig-go/core/fault"

// Cost is what a micro-batch takes, in seconds of audio: as long as the GPU computes, or as long as
// the CPU needs to launch its kernels, whichever is longer. So micro-batches that keep the GPU busy
// hide the CPU's work, and smaller ones cost no less.
type Cost struct {
	OverheadS float64 `json:"overhead_s"` // of the GPU, besides the padded seconds
	HostS     float64 `json:"host_s"`     // of the CPU
}

// Of is the cost of a micro-batch of so many padded seconds.
func (c Cost) Of(paddedS float64) float64 { return max(c.HostS, c.OverheadS+paddedS) }

// Check refuses what is not a number of seconds.
func (c Cost) Check() error {
	for _, part := range []struct {
		name    string
		seconds float64
	}{{"overhead_s", c.OverheadS}, {"host_s", c.HostS}} {
		if !(part.seconds >= 0 && part.seconds <= MaxSeconds) {
			return fault.New(fault.InvalidArgument, "pass 0 to 1e7 seconds", "%s = %g", part.name,
				part.seconds)
		}
	}
	return nil
}
