package plan

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// writeKernels decides on precision and on what PyTorch runs.
func (s *search) writeKernels(d *draft, f evaluated, ranked []evaluated) {
	preset, why, gpus := d.Preset, "", s.pool.gpus
	d.FP16, d.BF16 = f.precision == "fp16", f.precision == "bf16"
	_, _, why = mixedPrecision(gpus, preset)
	if s.in.Options.Precision != "" {
		why = "asked for"
	} else if len(gpus) > 0 && preset != Reproducible {
		why = s.precisionReason(f)
	}
	d.because("fp16", why)
	d.because("bf16", why)
	d.warn(slowHalfWarning(gpus, d.FP16))
	d.TF32, why = tf32(gpus, preset)
	d.because("tf32", why)
	s.explainCheckpointing(d, f, ranked)
	d.TorchCompile, why = torchCompile(gpus, preset)
	if d.TorchCompile && !s.clips.oneLength() {
		d.TorchCompile, why = false, fmt.Sprintf("preset %s compiles only where all batches have one length; here nearly every batch has its own and would be recompiled", preset)
	}
	d.because("torch_compile", why)
	d.CudnnBenchmark, why = cudnnBenchmark(gpus, preset)
	if d.CudnnBenchmark && !s.clips.oneLength() {
		d.CudnnBenchmark, why = false, fmt.Sprintf("preset %s benchmarks cuDNN's kernels only where all batches have one length; here nearly every batch has its own and would be timed again", preset)
	}
	d.because("cudnn_benchmark", why)
	d.Deterministic, why = deterministic(preset)
	d.because("deterministic", why)
	d.because("attn_implementation", "the model's own: transformers takes sdpa where the class has it")
	d.FreezeFeatureEncoder = s.in.Options.FreezeFeatureEncoder
	d.because("freeze_feature_encoder", "as asked for; its convolutions are a few percent of the parameters")
	d.LoRARank = s.in.Options.LoRARank
	d.because("lora_rank", s.adapterReason())
	why = "no GPU"
	if len(gpus) > 0 {
		d.AllocConf, why = estimate.AllocatorSettings, "batches of many lengths leave gaps in fixed segments; expandable ones do not"
	}
	d.because("alloc_conf", why)
}

func (s *search) adapterReason() string {
	if s.in.Options.LoRARank == 0 {
		return "the model itself trains"
	}
	return fmt.Sprintf("as asked for, or as the model has them: %d parameters train, the rest is frozen", s.in.Model.TrainableParameters)
}

func (s *search) precisionReason(f evaluated) string {
	g := oldest(s.pool.gpus)
	switch f.precision {
	case "bf16":
		return fmt.Sprintf("compute capability %s has bfloat16, which needs no loss scaler", g.ComputeCapability)
	case "fp16":
		return fmt.Sprintf("compute capability %s has no native bfloat16, so fp16 with a loss scaler", g.ComputeCapability)
	}
	return fmt.Sprintf("compute capability %s computes fp16 no faster, and float32 fits", g.ComputeCapability)
}

// writeData decides how the dataset is read.
func (s *search) writeData(d *draft, f evaluated) {
	data, why := s.in.Dataset, fmt.Sprintf("the dataset is local: its %s are read one by one anyway, and a stream has no order to choose", s.rows().Nouns())
	if d.Streaming = s.in.Options.Streamed; d.Streaming {
		why = "the dataset that was given is a stream"
	}
	d.because("streaming", why)
	s.writeLength(d, f)
	d.GroupByLength = d.LengthHandling == "grouped"
	d.because("group_by_length", map[bool]string{true: "set by length_handling", false: "length_handling decides how steps are drawn"}[d.GroupByLength])
	d.LengthBuckets = s.buckets(f)

	l := newLoader(d.Config, s.in, s.pool)
	l.room = max(0, l.room-f.pinned)
	d.DataloaderNumWorkers, why = s.workers(l, f)
	d.because("dataloader_num_workers", why)
	d.warn(l.sharedWarning(d.DataloaderNumWorkers))
	d.DataloaderPrefetchFactor, why = l.prefetchFactor(d.DataloaderNumWorkers)
	d.because("dataloader_prefetch_factor", why)
	d.DataloaderPinMemory, why = pinMemory(s.pool.gpus)
	d.because("dataloader_pin_memory", why)
	d.DataloaderPersistentWorkers, why = persistentWorkers(d.DataloaderNumWorkers)
	d.because("dataloader_persistent_workers", why)
	d.CacheDataset, why = caching(data, d.Streaming, d.DataloaderNumWorkers, l.room-l.bytes(d.DataloaderNumWorkers))
	d.because("cache_dataset", why)
}

// writeLength says which clips are cut, which are left out, and what it costs to keep the longest.
func (s *search) writeLength(d *draft, f evaluated) {
	rows := s.rows()
	why := fmt.Sprintf("no %s is longer than the model takes", rows.Noun())
	longest := s.in.Dataset.MaxS
	if s.clips.leftOut > 0 {
		longest = min(longest, *s.maxLength())
	}
	if s.clips.fixed > 0 && longest > s.clips.fixed && !s.in.Options.Streamed {
		chunk := s.clips.fixed
		d.ChunkLengthS, why = &chunk, fmt.Sprintf("the model takes %s, the longest %s has %s", rows.Length(chunk), rows.Noun(), rows.Length(longest))
		d.warn(fmt.Sprintf("Clips over %.4g s must be split: config.select(dataset) cuts them with their texts, by timestamps or by align=; max_length_s leaves them out.", chunk))
	}
	d.because("chunk_length_s", why)
	if s.in.Options.Streamed {
		s.writeStreamBound(d)
		return
	}
	if s.clips.leftOut == 0 {
		d.because("max_length_s", fmt.Sprintf("every %s fits%s", rows.Noun(), s.costOfLongest(f)))
		return
	}
	why = fmt.Sprintf("longer %s do not fit even alone", rows.Nouns())
	if s.in.Options.MaxLengthS != nil {
		why = "asked for"
	}
	d.MaxLengthS = s.maxLength()
	why = fmt.Sprintf("%s: %s of %s are left out", why, rows.Count(s.clips.leftOut), rows.Amount(s.clips.leftOutHours))
	d.because("max_length_s", why)
	d.warn("Over max_length_s = " + s.bound(*d.MaxLengthS) + ": " + why + ".")
}

// writeStreamBound says up to which length clips of a stream are trained on.
func (s *search) writeStreamBound(d *draft) {
	d.MaxLengthS = s.maxLength()
	rows := s.rows()
	why := fmt.Sprintf("%s were measured, the longest of %s", rows.Count(s.in.Dataset.MeasuredCount), rows.Length(s.in.Dataset.MaxS))
	if told := s.in.Dataset.Sampling; told != nil && *d.MaxLengthS >= s.in.Dataset.MaxS {
		why += fmt.Sprintf(": at most %.2g %% of the stream are longer, with 95 %% certainty", 100*told.LongerShare)
	}
	if s.in.Options.MaxLengthS != nil {
		why = "asked for; " + why
	}
	d.because("max_length_s", why)
	d.warn(fmt.Sprintf("%s of the stream over max_length_s = %s do not fit the plan. config.stream(dataset) leaves them out and counts them: %s.", rows.Named(), s.bound(*d.MaxLengthS), why))
}

// rows are what is trained on.
func (s *search) rows() units.RowKind { return s.in.Dataset.RowKind }

// bound is a limit on length as the setting has it, in seconds, and of texts in tokens, too.
func (s *search) bound(seconds float64) string {
	if !s.rows().AreTexts() {
		return number(seconds) + " s"
	}
	return fmt.Sprintf("%s s (%s)", number(seconds), s.rows().Length(seconds))
}

// maxLength is the length in seconds over which clips are left out; nil where none is.
func (s *search) maxLength() *float64 {
	if !s.in.Options.Streamed && (s.clips.leftOut == 0 || s.in.Options.MaxLengthS != nil) {
		return s.in.Options.MaxLengthS
	}
	limit := s.clips.sorted[len(s.clips.sorted)-1]
	return &limit
}

// costOfLongest tells what the few longest clips cost, if they cost anything.
func (s *search) costOfLongest(f evaluated) string {
	step := s.perDevice * s.pool.count
	options := batching.Options{Mode: batching.Packed, StepSamples: step, Ranks: s.pool.count, Buckets: usualBuckets, OverheadS: f.throughput.overheadS, Memory: f.memory, RowKind: s.rows()}
	told, err := batching.CostOfLongest(s.clips.sample(step, s.pool.count), options, nil)
	if err != nil || len(told) == 0 || len(s.clips.sorted) > simulated {
		return ""
	}
	return "; " + told[0].Text
}

// buckets are the ranges of length that the steps are made of.
func (s *search) buckets(f evaluated) []profile.Bucket {
	out := []profile.Bucket{}
	if f.chosen.order != batching.Packed && f.chosen.order != batching.Bucketed {
		return out
	}
	scale := float64(s.clips.count) / float64(f.simulated)
	for _, b := range f.buckets {
		out = append(out, profile.Bucket{UpToS: b.UpToS, Clips: int(math.Round(float64(b.Clips) * scale)), MicroBatch: b.MicroBatch})
	}
	return out
}

// loading is how long the workers of all devices need for an epoch's audio. Where only decoding was measured, the assumption
// for all of a worker's task stands as far as decoding is not slower already.
func (s *search) loading(workers int) timing.Range { return s.loadingOf(s.clips.seconds(), workers) }

// loadingOf is loading for so many seconds of audio.
func (s *search) loadingOf(seconds float64, workers int) timing.Range {
	rate := timing.WorkerRate(s.rows(), s.in.Model.Architecture, s.in.Dataset.SampleRates)
	if decoded := s.in.Options.DecodeRate; decoded != nil {
		rate = timing.Range{Low: min(rate.Low, *decoded), Likely: min(rate.Likely, *decoded), High: min(rate.High, *decoded)}
	}
	if measured := s.in.Options.LoaderRate; measured != nil {
		rate = timing.Range{Low: *measured, Likely: *measured, High: *measured}
	}
	return timing.Takes(seconds, rate.Times(float64(max(1, workers)*s.pool.count)))
}

const (
	workersToSpare = 1.5 // a loader that is just fast enough has no reserve for long clips and slow disks
	usualWorkers   = 2   // where nothing is known of the device's speed
)

// workers are as many as keep the GPU fed, as far as cores and RAM allow.
func (s *search) workers(l loader, f evaluated) (count int, why string) {
	if asked := s.in.Options.Workers; asked != nil {
		return *asked, "asked for"
	}
	cores := int(math.Floor(l.usableCores)) / s.pool.count
	most := min(maxHeavyWorkers, max(0, cores-1))
	wanted, source := usualWorkers, "the default where the GPU's speed is unknown"
	switch {
	case s.pool.onCPU():
		most, wanted, source = min(most, cores/4), 1, "training itself needs the cores"
	case f.throughput.known:
		demand := s.loading(1).Likely / max(f.chosen.epoch.Likely, math.SmallestNonzeroFloat64)
		wanted = max(1, int(math.Ceil(demand*workersToSpare)))
		source = fmt.Sprintf("one worker prepares %s %.3g times as fast as the GPU consumes it; with 50 %% to spare: %d", s.rows().Content(), 1/max(demand, 1e-9), wanted)
	}
	if l.heavy {
		wanted, source = max(wanted, most), source+"; heavy preprocessing: as many as the cores allow"
	}
	count = min(wanted, most)
	for count > 0 && l.bytes(count) > l.room {
		count--
	}
	count, short := l.shareable(count)
	return count, fmt.Sprintf("%s; of %s for each process %d can work; they take %s of the %s of RAM left%s", source, fault.Plural(cores, "core"), most, units.Size(l.bytes(count)), units.Size(l.room), short)
}
