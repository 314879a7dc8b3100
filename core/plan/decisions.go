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
	gpus := s.pool.gpus
	_, _, reason := mixedPrecision(gpus, d.Preset)
	if s.in.Options.Precision != "" {
		reason = "asked for"
	} else if len(gpus) > 0 && d.Preset != Reproducible && f.precision == "fp32" {
		reason = fmt.Sprintf("compute capability %s computes fp16 no faster, and float32 fits",
			oldest(gpus).ComputeCapability)
	}
	d.writePrecision(gpus, f.precision == "fp16", f.precision == "bf16", reason)
	s.explainCheckpointing(d, f, ranked)
	d.writeChoiceOfKernels(gpus, s.clips.oneLength())
	d.because("attn_implementation",
		"the model's own: transformers takes sdpa where the class has it")
	d.FreezeFeatureEncoder = s.in.Options.FreezeFeatureEncoder
	d.because("freeze_feature_encoder",
		"as asked for; its convolutions are a few percent of the parameters")
	d.LoRARank = s.in.Options.LoRARank
	d.because("lora_rank", s.adapterReason())
	reason = "no GPU"
	if len(gpus) > 0 {
		d.AllocConf, reason = estimate.AllocatorSettings,
			"batches of many lengths leave gaps in fixed segments; expandable ones do not"
	}
	d.because("alloc_conf", reason)
}

func (s *search) adapterReason() string {
	if s.in.Options.LoRARank == 0 {
		return "the model itself trains"
	}
	return fmt.Sprintf("as asked for, or as the model has them: %d parameters train, the rest is "+
		"frozen", s.in.Model.TrainableParameters)
}

// writeData decides how the dataset is read.
func (s *search) writeData(d *draft, f evaluated) {
	reason := fmt.Sprintf("the dataset is local: its %s are read one by one anyway, and a stream "+
		"has no order to choose", s.rows().Nouns())
	if d.Streaming = s.in.Options.Streamed; d.Streaming {
		reason = "the dataset that was given is a stream"
	}
	d.because("streaming", reason)
	s.writeLength(d, f)
	d.GroupByLength = d.LengthHandling == "grouped"
	d.because("group_by_length", map[bool]string{true: "set by length_handling",
		false: "length_handling decides how steps are drawn"}[d.GroupByLength])
	d.LengthBuckets = s.buckets(f)

	l := newLoader(d.Config, s.in, s.pool)
	l.room = max(0, l.room-f.pinned)
	d.DataloaderNumWorkers, reason = s.workers(l, f)
	d.because("dataloader_num_workers", reason)
	d.warn(l.sharedWarning(d.DataloaderNumWorkers))
	d.writeLoader(l, s.pool, s.in.Dataset)
}

// writeLength decides which clips are cut or left out, and describes the cost of the longest.
func (s *search) writeLength(d *draft, f evaluated) {
	rows := s.rows()
	reason := fmt.Sprintf("no %s is longer than the model takes", rows.Noun())
	longest := s.in.Dataset.MaxS
	if s.clips.leftOut > 0 {
		longest = min(longest, *s.maxLength())
	}
	switch chunk := s.clips.fixed; {
	case chunk == 0 || longest <= chunk || s.in.Options.Streamed:
	case classifies(s.in.Model):
		reason = fmt.Sprintf("of longer %s the model takes the first %s", rows.Nouns(),
			rows.Length(chunk))
	default:
		d.ChunkLengthS, reason = &chunk, fmt.Sprintf("the model takes %s, the longest %s has %s: "+
			"steps and times are those of %d pieces", rows.Length(chunk), rows.Noun(),
			rows.Length(longest), s.clips.count)
		d.warn(chunkWarning(&chunk))
	}
	d.because("chunk_length_s", reason)
	if s.in.Options.Streamed {
		s.writeStreamBound(d)
		return
	}
	if s.clips.leftOut == 0 {
		d.because("max_length_s", fmt.Sprintf("every %s fits%s", rows.Noun(), s.costOfLongest(f)))
		return
	}
	reason = fmt.Sprintf("longer %s do not fit even alone", rows.Nouns())
	if s.in.Options.MaxLengthS != nil {
		reason = "asked for"
	}
	d.MaxLengthS = s.maxLength()
	longer := fmt.Sprintf("%s of %s", rows.Count(s.clips.leftOut), rows.Amount(s.clips.leftOutHours))
	d.because("max_length_s", reason+": "+longer+" left out")
	d.warn(fmt.Sprintf("Left out over max_length_s = %s: %s (%s).", s.bound(*d.MaxLengthS), longer,
		reason))
}

// writeStreamBound sets the length up to which clips of a stream are trained on.
func (s *search) writeStreamBound(d *draft) {
	d.MaxLengthS = s.maxLength()
	rows := s.rows()
	reason := fmt.Sprintf("%s were measured, the longest of %s",
		rows.Count(s.in.Dataset.MeasuredCount), rows.Length(s.in.Dataset.MaxS))
	if sampling := s.in.Dataset.Sampling; sampling != nil && *d.MaxLengthS >= s.in.Dataset.MaxS {
		reason += fmt.Sprintf(": at most %.2g %% of the stream are longer, with 95 %% certainty",
			100*sampling.LongerShare)
	}
	if s.in.Options.MaxLengthS != nil {
		reason = "asked for; " + reason
	}
	d.because("max_length_s", reason)
	d.warn(fmt.Sprintf("%s of the stream over max_length_s = %s do not fit the plan. "+
		"config.stream(dataset) leaves them out and counts them: %s.", rows.Named(),
		s.bound(*d.MaxLengthS), reason))
}

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

// costOfLongest describes what the few longest clips cost; "" where nothing.
func (s *search) costOfLongest(f evaluated) string {
	step := s.perDevice * s.pool.count
	options := batching.Options{Mode: batching.Stratified, StepSamples: step, Ranks: s.pool.count,
		Buckets: UsualBuckets, Cost: f.throughput.micro, Memory: f.memory,
		RowKind: s.rows()}
	costs, err := batching.CostOfLongest(s.clips.sample(step, s.pool.count), options, nil)
	if err != nil || len(costs) == 0 || len(s.clips.sorted) > simulated {
		return ""
	}
	return "; " + costs[0].Text
}

// buckets are the ranges of length that the steps are made of.
func (s *search) buckets(f evaluated) []profile.Bucket {
	out := []profile.Bucket{}
	if f.chosen.order != batching.Bucketed {
		return out
	}
	scale := float64(s.clips.count) / float64(f.simulated)
	for _, b := range f.buckets {
		out = append(out, profile.Bucket{UpToS: b.UpToS,
			Clips: int(math.Round(float64(b.Clips) * scale)), MicroBatch: b.MicroBatch})
	}
	return out
}

// loading is how long the workers of all devices need for some seconds of audio. Where only decoding
// was measured, the assumption for all of a worker's task stands as far as decoding is not slower
// already.
func (s *search) loading(seconds float64, workers int) profile.Range {
	rate := timing.WorkerRate(s.rows(), s.in.Model.Architecture, s.in.Dataset.SampleRates)
	if decoded := s.in.Options.DecodeRate; decoded != nil {
		rate = profile.Range{Low: min(rate.Low, *decoded), Likely: min(rate.Likely, *decoded),
			High: min(rate.High, *decoded)}
	}
	if measured := s.in.Options.LoaderRate; measured != nil {
		rate = profile.Range{Low: *measured, Likely: *measured, High: *measured}
	}
	return timing.Takes(seconds, rate.Times(float64(max(1, workers)*s.pool.count)))
}

const (
	// a loader that is just fast enough has no reserve for long clips and slow disks
	workersToSpare = 1.5
	usualWorkers   = 2 // where nothing is known of the device's speed
)

// workers returns as many as keep the GPU busy, within cores and RAM.
func (s *search) workers(l loader, f evaluated) (count int, reason string) {
	if workers := s.in.Options.Workers; workers != nil {
		return *workers, "asked for"
	}
	cores := int(math.Floor(l.usableCores)) / s.pool.count
	limit := min(maxHeavyWorkers, max(0, cores-1))
	wanted, source := usualWorkers, "the default where the GPU's speed is unknown"
	switch {
	case s.pool.onCPU():
		limit, wanted, source = min(limit, cores/4), 1, "training itself needs the cores"
	case f.throughput.timed:
		demand := s.loading(s.clips.seconds(), 1).Likely /
			max(f.chosen.epoch.Likely, math.SmallestNonzeroFloat64)
		wanted = max(1, int(math.Ceil(demand*workersToSpare)))
		source = fmt.Sprintf("one worker prepares %s %.3g times as fast as the GPU consumes it; "+
			"with 50 %% to spare: %d", s.rows().Content(), 1/max(demand, 1e-9), wanted)
	}
	if l.heavy {
		wanted, source = max(wanted, limit), source+
			"; heavy preprocessing: as many as the cores allow"
	}
	count = min(wanted, limit)
	for count > 0 && l.bytes(count) > l.room {
		count--
	}
	count, short := l.shareable(count)
	return count, fmt.Sprintf("%s; of %s for each process %d can work; they take %s of the %s of "+
		"RAM left%s", source, fault.Plural(cores, "core"), limit, units.Size(l.bytes(count)),
		units.Size(l.room), short)
}
