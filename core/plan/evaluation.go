package plan

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// usualGeneration is the most tokens of a text, the usual limit for Whisper's 30 s.
const usualGeneration = 225

// evalClips returns how many clips the model is evaluated with, and where the number comes from.
func (s *search) evalClips() (clips int, source string) {
	if requested := s.in.Options.EvalSamples; requested != nil {
		return *requested, "eval_samples"
	}
	return int(math.Ceil(usualEvalShare * float64(s.clips.count))),
		"assumed: a tenth of those trained on; eval_samples says how many"
}

// writeEvalBatch decides how many clips an evaluation takes at once.
func (s *search) writeEvalBatch(d *draft, f evaluated) {
	batch, reason := max(d.MicroBatchSize, s.sizes(f)[0]),
		fmt.Sprintf("as many of the longest %s as in training, which needs more memory",
			s.rows().Nouns())
	if f.traced.EvalBatch != nil {
		batch, reason = *f.traced.EvalBatch,
			fmt.Sprintf("as many of the longest %s as fit by a traced evaluation, without "+
				"gradients", s.rows().Nouns())
	}
	beams := profile.Or(s.in.Options.NumBeams, 1)
	if decoder := f.traced.Decoder; decoder != nil && s.in.Options.generates(f.traced) {
		reason = fmt.Sprintf("%s; %s of up to %d tokens keep %s of keys and values", reason,
			texts(batch, beams), s.in.Options.mostTokens(*decoder),
			units.Size(decoder.CacheBytes))
	} else if beams > 1 {
		batch, reason = batch/beams,
			fmt.Sprintf("%s; divided by %d beams, each of which keeps its encoder output", reason,
				beams)
	}
	d.PerDeviceEvalBatchSize = max(1, batch)
	d.because("per_device_eval_batch_size", reason)
}

// texts describes the texts that a batch generates at once.
func texts(clips, beams int) string {
	if beams == 1 {
		return fault.Plural(clips, "text")
	}
	return fmt.Sprintf("%d beams of %s", beams, fault.Plural(clips, "text"))
}

// evaluating is the time of one evaluation of the given clips, loading included.
func (s *search) evaluating(d *draft, f evaluated, clips int) profile.Range {
	share := (clips + s.pool.count - 1) / s.pool.count
	batch := min(d.PerDeviceEvalBatchSize, share)
	sample := s.clips.sample(batch, 1)
	padded := min(s.clips.longest(), batching.Expected(sample,
		min(batch, len(sample)))/float64(len(sample)))
	loader := s.loading(s.clips.seconds()*float64(clips)/float64(s.clips.count),
		d.DataloaderNumWorkers)
	forward := f.throughput.paddedSecond.Times(f.throughput.forward *
		f.throughput.micro.Of(float64(batch)*padded))
	gpu := estimate.Evaluation(forward, float64(share)/float64(batch), s.generation(f))
	return estimate.WithLoader(gpu, loader, d.DataloaderNumWorkers)
}

// generation describes how the texts of a batch are generated: as long as the longest one takes, or
// up to the maximum without an end token. Nil for a model that does not generate, or where the
// options turn it off.
func (s *search) generation(f evaluated) *estimate.Generation {
	if !s.in.Options.generates(f.traced) || len(f.traced.Work) == 0 {
		return nil
	}
	return s.in.Options.Generation(*f.traced.Decoder, f.traced.Work[0].Work)
}

// Generation describes how the texts of a batch are generated, from the decoder's share of the
// kernels of a forward pass of one clip.
func (o EvaluationOptions) Generation(d TracedDecoder, one kernel.Work) *estimate.Generation {
	maxTokens := o.mostTokens(d)
	kernels := 0.0
	for _, op := range one.ForwardPass() {
		kernels += float64(op.Kernels) * op.Times
	}
	return &estimate.Generation{Tokens: min(maxTokens, d.Tokens), MaxTokens: maxTokens,
		Kernels: d.Share * kernels * math.Sqrt(float64(profile.Or(o.NumBeams, 1)))}
}

// mostTokens returns the tokens of a text that does not end.
func (o EvaluationOptions) mostTokens(d TracedDecoder) int64 {
	limit := int64(profile.Or(o.GenerationMaxLength, usualGeneration))
	if d.MostTokens > 0 {
		limit = min(limit, d.MostTokens)
	}
	return limit
}

func (o EvaluationOptions) generates(t *Traced) bool {
	return t.Decoder != nil && profile.Or(o.PredictWithGenerate, true)
}

// CheckGeneration rejects generation options for a model that does not generate, and a decoder
// larger than its model. Errors: InvalidArgument.
func (o EvaluationOptions) CheckGeneration(decoder *TracedDecoder, model string) error {
	if decoder != nil && !(decoder.Share >= 0 && decoder.Share <= 1) {
		return fault.New(fault.InvalidArgument, "trace again",
			"the decoder of %s has a share of %v of its layers", model, decoder.Share)
	}
	if decoder != nil || o.NumBeams == nil && o.GenerationMaxLength == nil &&
		!profile.Or(o.PredictWithGenerate, false) {
		return nil
	}
	return fault.New(fault.InvalidArgument,
		"leave predict_with_generate, generation_max_length and num_beams out",
		"%s has no decoder that generates", model)
}
