package estimate

import "github.com/asrconfig/asrconfig-go/core/profile"

// Budget is where a micro-batch is to fit.
type Budget struct {
	GPU     profile.GPU
	Devices int    // that share a step
	Bytes   uint64 // bytes of this one, context included
	// what sharing the model's state adds to it, or saves; absent: DDP's buckets with several GPUs
	Shared *int64
}
