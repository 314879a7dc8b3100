package sharding

// ddp keeps everything in each process. Its reducer copies gradients into flat buckets, allocated
// once for all trained parameters and as wide as they are: a second copy, which only
// gradient_as_bucket_view saves, and the Trainer does not set that
// (torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets; transformers/trainer.py passes
// find_unused_parameters, bucket_cap_mb and broadcast_buffers on).
func ddp(r Request, s *States) {
	s.Buffers += r.GradientBytes
}

// zero is DeepSpeed's ZeRO under the Trainer. The module is cast to the 16-bit type, buffers
// excepted, and computes without autocast (accelerate/accelerator.py: native_amp is off); each
// process keeps a float32 copy of its share of the trained parameters, in float32 training too, and
// the optimizer's state for that share. Gradients are 16-bit numbers unless
// data_types.grad_accum_dtype says otherwise. For the step a process makes a float32 copy of its
// share of them, which DeepSpeed's estimate_zero2_model_states_mem_needs counts as the 4 in 18
// bytes a parameter.
func zero(r Request, s *States, stage int) {
	width := widths[r.Precision]
	s.Parameters, s.Gradients = min(r.ParameterBytes, width*r.Parameters),
		min(r.GradientBytes, width*r.Trainable)
	if stage == 3 {
		s.Parameters = r.share(s.Parameters)
	}
	if stage >= 2 {
		s.Gradients = r.share(s.Gradients)
	}
	s.Step = r.share(4 * r.Trainable) // as much as the copy of the parameters
	s.Optimizer = r.flatState() + s.Step
	s.Buffers = width * ReduceBucket // and none for autocast, whose copies the parameters are here
	if stage == 1 {
		// what is copied into the bucket is freed before the bucket's copy is made that is sent
		return
	}
	s.Buffers += width * min(r.Trainable, ReduceBucket) // copy of the bucket that is sent
	if stage == 3 {
		live := min(r.Parameters, LiveParameters+r.Block()) + min(r.Parameters, PrefetchBucket)
		s.Buffers += width * live // parameters that are gathered, and the buffer they come in
	}
}

// fsdp is full sharding by layers (FSDP2; FSDP1 with the same units and transformers' NO_PREFETCH
// gathers a layer less). Accelerate makes the shards float32 whenever it computes in 16 bits
// (fsdp2_prepare_model), gathers layers in 16 bits, and gives gradients back in float32. While one
// layer computes, the next is gathered: two whole layers and the buffer of a collective; in the
// backward pass also a layer's whole gradients and the copy of them that is sent. What lies outside
// of the layers stays gathered from forward to backward, since the root is not resharded
// (fully_shard, reshard_after_forward).
//
// Where gradients are not sent with each micro-batch (no_sync, the Trainer's way unless
// sync_each_batch is set and the Trainer knows it) they stay whole until the last one of an
// optimizer step.
func fsdp(r Request, s *States) {
	width := widths[r.Precision]
	parameters, gradients := r.ParameterBytes, r.GradientBytes
	if width < 4 {
		parameters, gradients =
			parameters+max(0, 4*r.Trainable-gradients), max(gradients, 4*r.Trainable)
	}
	s.Parameters, s.Gradients, s.Optimizer = r.share(parameters), r.share(gradients), r.flatState()
	// gathered layers, which are autocast's copies here, and what lies outside of them
	s.Buffers = width * min(r.Parameters, 3*r.Block()+r.outside())
	unsharded := 2 * r.Block()
	if r.DeferredSends {
		unsharded = max(unsharded, r.Trainable)
	}
	s.Buffers += width * min(r.Trainable, unsharded) // whole gradients, before they are sent
}

// assumedLayers are those of the smallest speech models that anyone shards (wav2vec2-base, Whisper
// small's encoder); larger models have more, and so smaller ones.
const assumedLayers = 12

// Block is the largest unit that FSDP gathers: LargestBlock, or where that is not known a twelfth
// of the model.
func (r Request) Block() int64 {
	if r.LargestBlock > 0 {
		return r.LargestBlock
	}
	return (r.Parameters + assumedLayers - 1) / assumedLayers
}

func (r Request) outside() int64 {
	if r.Outside > 0 {
		return r.Outside
	}
	return r.Block()
}

// flatState is one process's share of the optimizer's state. Shards are flat: Adafactor, which
// keeps means of rows and columns, keeps a whole second moment of them instead
// (transformers/optimization.py: factored from two dimensions on).
func (r Request) flatState() int64 {
	if r.Optimizer == "adafactor" {
		return r.share(max(r.OptimizerBytes, 4*r.Trainable))
	}
	return r.share(r.OptimizerBytes)
}

// share is one process's part, rounded up: shards are padded to equal sizes.
func (r Request) share(bytes int64) int64 {
	devices := int64(r.Devices)
	return (bytes + devices - 1) / devices
}
