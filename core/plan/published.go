package plan

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// planPublished is the reference system's formula and rules, in an order in which each finds what
// it needs: memory and batch, precision, data, optimizer. Its activations do not grow with the
// length of the clips, so it is far from real memory; it is kept under its name for comparison.
func planPublished(in Inputs) (profile.Config, error) {
	p := newPool(in.Hardware, in.Options)
	d := newDraft(in, p)
	if err := planBatch(d, in, p); err != nil {
		return profile.Config{}, err
	}
	planPrecision(d, in, p)
	planData(d, in, p)
	planOptimizer(d, in)
	planRule(d, in)
	d.trainerDefaults(in, p)
	return d.finish()
}

// trainerDefaults leaves to the Trainer and the model what the published rules do not cover.
func (d *draft) trainerDefaults(in Inputs, p pool) {
	d.MicroBatching, d.MicroBatchSize, d.LengthHandling, d.LengthBuckets =
		"fixed", d.PerDeviceTrainBatchSize, "random", []profile.Bucket{}
	d.MicroBatches = []profile.MicroBatch{{Clips: d.PerDeviceTrainBatchSize,
		Seconds: min(in.Dataset.MaxS, profile.Or(d.ChunkLengthS, in.Dataset.MaxS))}}
	d.because("micro_batching", "the published rules know one size for all "+
		in.Dataset.RowKind.Nouns())
	d.because("micro_batch_size", "as the batch of a device")
	d.MicroBatchOverheadS = UnknownOverheadS
	d.because("micro_batch_overhead_s", "assumed; not used to split steps")
	d.because("micro_batch_host_s", "not used to split steps")
	d.because("length_handling",
		fmt.Sprintf("the published rules shuffle %s of all lengths together",
			in.Dataset.RowKind.Nouns()))
	d.because("max_length_s", "the published rules keep every "+in.Dataset.RowKind.Noun())
	d.because("eval_accumulation_steps",
		"the Trainer's default: predictions stay on the GPU until the evaluation ends")
	d.because("eval_steps", "the published rules do not speak of evaluations")
	d.because("save_steps", "the Trainer's default")
	d.because("eval_samples", "the published rules do not speak of evaluations")
	d.because("attn_implementation", "the published rules keep the model's")
	d.because("freeze_feature_encoder", "as the model was given")
	d.because("lora_rank", "the published rules train the model itself")
	d.because("alloc_conf", "the published rules keep PyTorch's")
	d.Distributed = "none"
	if d.DeviceCount > 1 {
		d.Distributed = "ddp"
	}
	d.because("distributed", p.reason)
	d.BudgetBytes, d.MemoryParts, d.Alternatives, d.Devices =
		int64(p.planned*d.SafetyMargin), []profile.Part{}, []profile.Alternative{}, d.devices(p, nil)
	d.because("budget_bytes", fmt.Sprintf("%s × %v on %s", units.Size(p.planned), d.SafetyMargin,
		p.where()))
}

// devices are the GPUs with their shares of a step, nil: the same.
func (d *draft) devices(p pool, shares []int) []profile.Device {
	all := make([]profile.Device, len(p.gpus))
	for i, g := range p.gpus {
		planned, _ := plannedMemory(g, d.SafetyMargin)
		samples := d.PerDeviceTrainBatchSize * d.GradientAccumulationSteps
		if shares != nil {
			samples = shares[i]
		}
		all[i] = profile.Device{Index: g.Index, UUID: g.UUID, Name: g.Name, Samples: samples,
			MicroBatchSize: min(d.MicroBatchSize, samples), PeakBytes: d.PredictedBytes,
			BudgetBytes: int64(planned * d.SafetyMargin)}
	}
	return all
}

func planBatch(d *draft, in Inputs, p pool) error {
	o := in.Options
	f := newFootprint(in.Model, optimizers[o.Optimizer].state, in.Dataset)
	setMemory(d, in, p)
	warning, err := feasibility(p, deviceTotal(in.Hardware, p), o.SafetyMargin, f)
	if err != nil {
		return err
	}
	d.warn(warning)

	d.TargetBatchSize, d.DeviceCount = o.TargetBatchSize, p.count
	allowed, reason := microBatch(p.planned, o.SafetyMargin, f, o.Preset)
	micro, accumulation := split(allowed, o.TargetBatchSize, p.count)
	d.PerDeviceTrainBatchSize, d.GradientAccumulationSteps, d.PerDeviceEvalBatchSize =
		micro, accumulation, micro
	d.ModelMemoryBytes, d.PredictedBytes = f.model(), f.predicted(micro)

	d.because("target_batch_size", "asked for")
	d.because("device_count", p.reason)
	d.because("model_memory_bytes",
		fmt.Sprintf("%s parameters + %s gradients + %s %s state (%d of %d parameters trained)",
			units.Size(f.parameters), units.Size(f.gradients),
			units.Size(f.optimizer), optimizers[o.Optimizer].state,
			in.Model.TrainableParameters, in.Model.TotalParameters))
	d.because("per_device_train_batch_size", reason+
		fitReason(allowed, micro, o.TargetBatchSize, p.count))
	d.because("gradient_accumulation_steps",
		fmt.Sprintf("%d / (%d × %s); effective batch %d × %d × %d = %d",
			o.TargetBatchSize, micro, fault.Plural(p.count, "device"), micro, accumulation, p.count,
			d.Effective()))
	d.because("per_device_eval_batch_size",
		"as in training, which needs more memory: evaluation keeps no gradients and no activations")
	d.because("predicted_bytes", fmt.Sprintf("%s model + %d × %s a %s: %.0f %% of the %s of %s",
		units.Size(f.model()), micro, units.Size(f.clip()), in.Dataset.RowKind.Noun(),
		100*float64(d.PredictedBytes)/p.planned, units.Size(p.planned), p.where()))
	d.warn(effectiveWarning(o.TargetBatchSize, micro, accumulation, p.count))
	d.warn(fewClipsWarning(in.Dataset.RowKind, in.Dataset.SampleCount, d.Effective()))
	return nil
}

// setMemory writes down which memory the plan is for.
func setMemory(d *draft, in Inputs, p pool) {
	d.SafetyMargin = in.Options.SafetyMargin
	d.because("safety_margin", fmt.Sprintf("asked for; %s × %v = %s usable on %s",
		units.Size(p.planned), d.SafetyMargin, units.Size(p.planned*d.SafetyMargin), p.where()))
	if p.onCPU() {
		d.because("gpu_memory_bytes", fmt.Sprintf("no GPU: planned from the %s of RAM available",
			units.Size(p.planned)))
		return
	}
	g := p.gpus[p.tightest]
	d.GPUName, d.GPUMemoryBytes = g.Name, &g.MemoryTotalBytes
	reason := fmt.Sprintf("total of %s, from the %s", p.where(), g.Source)
	if len(p.gpus) > 1 {
		reason += fmt.Sprintf(", the tightest of %d", len(p.gpus))
	}
	d.because("gpu_memory_bytes", reason)
}

func deviceTotal(h profile.Hardware, p pool) uint64 {
	if p.onCPU() {
		return h.Memory.TotalBytes
	}
	return p.gpus[p.tightest].MemoryTotalBytes
}

func planPrecision(d *draft, in Inputs, p pool) {
	fp16, bf16, reason := publishedPrecision(p.gpus, d.Preset)
	d.writePrecision(p.gpus, fp16, bf16, reason)
	d.GradientCheckpointing, reason = gradientCheckpointing(in.Model)
	d.because("gradient_checkpointing", reason)
	d.EveryNLayers = 1
	d.because("every_n_layers", "the published rule knows no other")
	d.because("offload_checkpoints", "the published rule keeps them on the GPU")
	d.writeChoiceOfKernels(p.gpus, true)
}

func planData(d *draft, in Inputs, p pool) {
	data, reason := in.Dataset, ""
	d.Streaming, reason = streaming(data)
	d.because("streaming", reason)
	d.ChunkLengthS, reason = chunkLength(data)
	d.because("chunk_length_s", reason)
	d.warn(chunkWarning(d.ChunkLengthS))
	d.warn(lengthWarning(data, d.ChunkLengthS))

	l := newLoader(d.Config, in, p)
	d.DataloaderNumWorkers, reason = l.workers()
	d.because("dataloader_num_workers", reason)
	d.writeLoader(l, p, data)
	d.because("group_by_length",
		fmt.Sprintf("the published rules shuffle %s of all lengths together", data.RowKind.Nouns()))
}

// writeLoader decides what follows from the number of workers.
func (d *draft) writeLoader(l loader, p pool, data profile.Dataset) {
	workers, batches := d.DataloaderNumWorkers, l.prefetch()
	prefetched, pinned := "no workers to prefetch", "no GPU to copy to"
	persistent := "no workers to keep"
	if d.DataloaderPersistentWorkers = workers > 0; workers > 0 {
		d.DataloaderPrefetchFactor = &batches // which PyTorch refuses without workers
		prefetched = fmt.Sprintf("%d batches ready in each of %s", batches,
			fault.Plural(workers, "worker"))
		persistent = "workers stay alive between epochs"
	}
	if d.DataloaderPinMemory = !p.onCPU(); d.DataloaderPinMemory {
		pinned = "batches are copied to the GPU while it computes (non_blocking)"
	}
	d.because("dataloader_prefetch_factor", prefetched)
	d.because("dataloader_pin_memory", pinned)
	d.because("dataloader_persistent_workers", persistent)
	var reason string
	d.CacheDataset, reason = caching(data, d.Streaming, workers, l.room-l.bytes(workers))
	d.because("cache_dataset", reason)
}

// newLoader works out the host RAM that is left for workers: what is available times the margin,
// and on a CPU less what training itself is predicted to take.
func newLoader(c profile.Config, in Inputs, p pool) loader {
	room := float64(in.Hardware.Memory.AvailableBytes) * c.SafetyMargin
	if p.onCPU() {
		room = max(0, room-float64(c.PredictedBytes))
	}
	longest := max(in.Dataset.MaxS, in.Dataset.MeanS)
	if c.ChunkLengthS != nil {
		longest = min(longest, *c.ChunkLengthS)
	}
	return loader{
		memory:      in.Hardware.Memory,
		usableCores: in.Hardware.CPU.UsableCores,
		hours:       in.Dataset.TotalHours,
		heavy:       in.Options.Preprocessing == HeavyPreprocessing,
		room:        room,
		batchBytes:  in.Dataset.RowKind.Bytes(longest) * float64(c.PerDeviceTrainBatchSize),
		accumulated: c.GradientAccumulationSteps,
		shared:      in.Options.ShmFreeBytes,
	}
}

// planRule keeps what the loss divides by, where that was given: the guard takes it from the plan.
func planRule(d *draft, in Inputs) {
	if d.Rule = in.Options.Rule; d.Rule != "" {
		d.because("rule", "as given: the guard weights micro-batches by it")
	}
}

func planOptimizer(d *draft, in Inputs) {
	o, reason := in.Options, ""
	d.Optimizer = optimizers[o.Optimizer].name
	reason = "asked for as " + o.Optimizer
	if o.Optimizer == defaultOptimizer {
		reason = "the Trainer's default since transformers 5: AdamW in one kernel, without " +
			"temporary lists in a step"
	}
	d.because("optimizer", fmt.Sprintf("%s; its state takes %s", reason,
		units.Size(in.Model.OptimizerBytes[optimizers[o.Optimizer].state])))
	d.LRScaling = o.LRScaling
	d.because("lr_scaling", "asked for; sqrt is the default")
	d.LearningRate, reason = learningRate(o, d.Effective())
	d.because("learning_rate", reason)
	d.warn(rateWarning(o))
	d.NumTrainEpochs = profile.Or(o.NumTrainEpochs, DefaultEpochs)
	d.because("num_train_epochs", optionReason(o.NumTrainEpochs, "the Trainer's default"))
	d.warn(streamingWarning(d.Streaming, in.Dataset, d.Effective(), d.NumTrainEpochs))
	d.WarmupRatio, d.MaxGradNorm = warmupRatio, maxGradNorm
	d.because("warmup_ratio", "a tenth of all steps, as usual: attention is unstable at the full "+
		"rate at first")
	d.because("max_grad_norm", "gradient clipping at the Trainer's default")
	d.WeightDecay, reason = weightDecay(d.Optimizer)
	d.because("weight_decay", reason)
	d.Seed = profile.Or(o.Seed, defaultSeed)
	d.because("seed", optionReason(o.Seed, "the Trainer's default"))
}
