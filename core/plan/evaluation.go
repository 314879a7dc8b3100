package plan

import (
	"fmt"
	"math"
	"sort"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/analytic"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// usualGeneration is the most tokens of a text, as usual for Whisper's 30 s.
const usualGeneration = 225

// evalClips is how many clips the model is evaluated with, and how that is known.
func (s *search) evalClips() (clips int, source string) {
	if given := s.in.Options.EvalSamples; given != nil {
		return *given, "eval_samples"
	}
	return int(math.Ceil(usualEvalShare * float64(s.clips.count))), "assumed: a tenth of those trained on; eval_samples says how many"
}

// described is the model by its config; nil where it is known by its traces alone.
func (s *search) described() *analytic.Model {
	if s.estimator == nil {
		return nil
	}
	m, err := s.estimator.Model(s.in.Options.FreezeFeatureEncoder)
	if err != nil {
		return nil
	}
	return m
}

// writeEvalBatch decides how many clips an evaluation takes at once.
func (s *search) writeEvalBatch(d *draft, f evaluated) (err error) {
	batch, why := d.MicroBatchSize, fmt.Sprintf("as many of the longest %s as in training, which needs more memory", s.rows().Nouns())
	if f.traced != nil && f.traced.EvalBatch != nil {
		batch, why = *f.traced.EvalBatch, fmt.Sprintf("as many of the longest %s as fit by a traced evaluation, without gradients", s.rows().Nouns())
	}
	if m := s.described(); m != nil && s.in.Options.generates(m) {
		batch, why, err = s.generating(m, f, batch, why)
	} else if beams := profile.Or(s.in.Options.NumBeams, 1); beams > 1 {
		batch, why = batch/beams, fmt.Sprintf("%s; divided by %d beams, each of which keeps what it heard", why, beams)
	}
	d.PerDeviceEvalBatchSize = max(1, batch)
	d.because("per_device_eval_batch_size", why)
	return err
}

// generating is how many of so many clips also fit while their texts are generated, and why.
func (s *search) generating(m *analytic.Model, f evaluated, batch int, why string) (int, string, error) {
	beside, err := s.budget.OutsideAllocator(s.in.Model.TrainableParameters)
	if err != nil {
		return 0, "", err
	}
	g := s.in.Options.Generation(m, s.clips.longest())
	held := func(clips int) (found analytic.GenerationMemory) {
		q := s.question(f.candidate, clips)
		q.Accumulating = false
		if err == nil {
			found, err = m.GenerationPeak(q.Request(), int64(g.Beams), g.MaxTokens)
		}
		return found
	}
	fits := sort.Search(batch, func(n int) bool { return int64(held(n+1).PeakReserved)+beside > int64(s.budget.Bytes) })
	fits = max(1, fits)
	found := held(fits)
	if fits < batch {
		why = fmt.Sprintf("%d of %d, %s, fit while texts are generated", fits, batch, why)
	}
	return fits, fmt.Sprintf("%s; %s of up to %d tokens keep %s of keys and values, in all %s with the optimizer's state", why, texts(fits, g.Beams), g.MaxTokens,
		units.Size(float64(found.CacheBytes)), units.Size(float64(int64(found.PeakReserved)+beside))), err
}

// texts are those of a batch while they are generated.
func texts(clips, beams int) string {
	if beams == 1 {
		return fault.Plural(clips, "text")
	}
	return fmt.Sprintf("%d beams of %s", beams, fault.Plural(clips, "text"))
}

// evaluating is what one evaluation with so many clips takes, the loader's part in it; its batches by the estimate from the config.
func (s *search) evaluating(d *draft, f evaluated, clips int) (timing.Range, error) {
	share := (clips + s.pool.count - 1) / s.pool.count
	batch := min(d.PerDeviceEvalBatchSize, share)
	sample := s.clips.sample(batch, 1)
	padded := min(s.clips.longest(), batching.Expected(sample, min(batch, len(sample)))/float64(len(sample)))
	loader := s.loadingOf(s.clips.seconds()*float64(clips)/float64(s.clips.count), d.DataloaderNumWorkers)
	m := s.described()
	if m == nil {
		return s.withLoader(d, f.forwardShare(float64(share)*padded+f.throughput.overheadS*float64(share)/float64(batch)), loader), nil
	}
	q := s.question(f.candidate, batch)
	q.Accumulating, q.Seconds = false, max(estimate.Shortest, padded)
	e := estimate.Evaluation{Request: q.Request(), Batches: float64(share) / float64(batch)}
	sorted := s.clips.sorted
	e.Generation = s.in.Options.Generation(m, batching.Expected(sorted, min(batch, len(sorted)))/float64(len(sorted)))
	one, err := f.throughput.slowest.Evaluate(m, e)
	return s.withLoader(d, one, loader), err
}

// forwardShare is what a forward pass over so many seconds takes of what training on them does: a third, as backward takes twice as long, and a quarter
// where layers are computed again. For models that are known by their traces alone.
func (f evaluated) forwardShare(seconds float64) timing.Range {
	return f.throughput.paddedSecond.Times(seconds / (passes + f.checkpointing.Share()))
}

// Generation is how the texts of a batch come about whose longest clip has so many seconds: it takes as long as that one's, or goes on without end to
// the most. Nil for a model that does not generate, or where the options say so.
func (o EvaluationOptions) Generation(m *analytic.Model, longest float64) *estimate.Generation {
	if !o.generates(m) {
		return nil
	}
	most := int64(profile.Or(o.GenerationMaxLength, usualGeneration))
	if positions := m.MostLabels(); positions > 0 {
		most = min(most, positions)
	}
	return &estimate.Generation{Tokens: min(most, m.UsualLabels(longest)), MaxTokens: most, Beams: profile.Or(o.NumBeams, 1)}
}

func (o EvaluationOptions) generates(m *analytic.Model) bool {
	return m.Generates() && profile.Or(o.PredictWithGenerate, true)
}

// CheckGeneration refuses to generate with a model that does not. Errors: InvalidArgument.
func (o EvaluationOptions) CheckGeneration(m *analytic.Model) error {
	if m.Generates() || o.NumBeams == nil && o.GenerationMaxLength == nil && !profile.Or(o.PredictWithGenerate, false) {
		return nil
	}
	return fault.New(fault.InvalidArgument, "leave predict_with_generate, generation_max_length and num_beams out",
		"%s has no decoder that generates", m.Profile().ClassOrName())
}
