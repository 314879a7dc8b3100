package plan

import (
	"fmt"
	"math"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	// of the training's time that evaluations may take; and of its clips, where the evaluation set
	// is not known
	usualEvalShare = 0.1
	// optimizer steps between evaluations and checkpoints, the Trainer's default
	usualInterval     = 500
	fewestEvaluations = 4   // of a run, where fewer clips would save the time
	fewestClips       = 100 // of fewer, error rates tell little
)

// schedule is how often a model is saved and evaluated, with how many clips, and what that takes.
type schedule struct {
	steps, interval, clips int
	one                    profile.Range // seconds of an evaluation; 0 where there is none
	training               float64       // seconds of the run's steps
}

// times is how many evaluations there are.
func (r schedule) times() int { return estimate.Occasions(r.steps, r.interval) }

// share of the training's time.
func (r schedule) share() float64 {
	return float64(r.times()) * r.one.Likely / max(r.training, math.SmallestNonzeroFloat64)
}

func (r schedule) cost() string {
	return fmt.Sprintf("%s in all, %.2g %% of the training's time",
		minutes(float64(r.times())*r.one.Likely), 100*r.share())
}

// rarer is the same schedule with at most so many evaluations.
func (r schedule) rarer(evaluations float64) schedule {
	r.interval = min(r.steps, max(r.interval, int(math.Ceil(float64(r.steps)/math.Floor(max(1,
		evaluations))))))
	return r
}

// writeRun decides how often a run is evaluated and saved, and with how many clips.
func (s *search) writeRun(d *draft, f evaluated) (schedule, error) {
	steps := max(1, int(math.Ceil(d.NumTrainEpochs*float64(f.chosen.steps))))
	quarter := (steps + fewestEvaluations - 1) / fewestEvaluations
	usual := schedule{steps: steps, interval: min(usualInterval, quarter),
		training: s.epochSeconds(d, f.chosen).Likely * d.NumTrainEpochs}
	clips, source := s.evalClips()
	err := s.in.Options.CheckGeneration(f.traced.Decoder, s.in.Model.ClassOrName())
	if err != nil || clips == 0 {
		reason := fmt.Sprintf("no %s to evaluate with", s.rows().Nouns())
		d.because("eval_steps", reason)
		d.because("eval_samples", reason)
		d.writeSaves(usual, "as often as usual")
		return usual, err
	}
	if usual.clips = clips; f.throughput.timed {
		usual.one = s.evaluating(d, f, clips)
	}
	chosen := s.affordable(d, f, usual)
	d.EvalSteps = &chosen.interval
	d.because("eval_steps", s.intervalReason(usual, chosen, source))
	whySamples := "all that there are"
	if chosen.clips < clips || s.in.Options.EvalSamples != nil {
		d.EvalSamples = &chosen.clips
	}
	if chosen.clips < clips {
		whySamples = fmt.Sprintf(
			"so many of %d, drawn at random, for evaluations of %s and not of %s", clips,
			minutes(chosen.one.Likely), minutes(usual.one.Likely))
	}
	d.because("eval_samples", whySamples)
	d.writeSaves(chosen, "with each evaluation, so that the best model can be taken")
	return chosen, nil
}

// affordable is the schedule whose evaluations stay under their share of the training's time: with
// longer intervals down to a few evaluations, then with fewer clips down to a few, and then with
// intervals as long as it takes.
func (s *search) affordable(d *draft, f evaluated, r schedule) schedule {
	allowed := profile.Or(s.in.Options.MaxEvalShare, usualEvalShare)
	if r.share() <= allowed {
		return r
	}
	once := r.rarer(1).share()
	if r = r.rarer(max(fewestEvaluations, allowed/once)); r.share() <= allowed {
		return r
	}
	// less than a batch would take as long
	fewest := max(fewestClips, d.PerDeviceEvalBatchSize*s.pool.count)
	if fewer := max(fewest, int(float64(r.clips)*allowed/r.share())); fewer < r.clips {
		r.one = s.evaluating(d, f, fewer)
		r.clips = fewer
	}
	if r.share() > allowed*aboutRight {
		r = r.rarer(allowed / r.rarer(1).share())
	}
	return r
}

// aboutRight is how far over its share an evaluation may be that was shortened for it: what does
// not shrink with its clips.
const aboutRight = 1.05

// intervalReason describes what evaluations take, and what they would have taken.
func (s *search) intervalReason(usual, chosen schedule, source string) string {
	set := fmt.Sprintf("%s (%s)", s.rows().Count(usual.clips), source)
	switch {
	case chosen.one.Likely == 0:
		return fmt.Sprintf("%s of %s; how long they take is not known",
			fault.Plural(chosen.times(), "evaluation"), set)
	case chosen == usual:
		return fmt.Sprintf("%s of %s: %s", fault.Plural(chosen.times(), "evaluation"), set,
			chosen.cost())
	}
	return fmt.Sprintf("every %s evaluations of %s would take %.0f %% of the training's time; %s "+
		"of %s: %s", fault.Plural(usual.interval, "step"), set,
		100*usual.share(), fault.Plural(chosen.times(), "evaluation"), s.rows().Count(chosen.clips),
		chosen.cost())
}

func minutes(seconds float64) string {
	if seconds < 60 {
		return fmt.Sprintf("%.2g s", seconds)
	}
	return fmt.Sprintf("%.3g min", seconds/60)
}

func (d *draft) writeSaves(r schedule, reason string) {
	d.SaveSteps = &r.interval
	d.because("save_steps", fmt.Sprintf("%s: %s", reason, fault.Plural(r.times(), "checkpoint")))
}

// CheckpointBytes is what is written for one checkpoint: the weights, of adapters themselves alone,
// and the optimizer's state.
func CheckpointBytes(m profile.Model, optimizer string, adapters bool) int64 {
	weights := m.ParameterBytes
	if adapters {
		weights = gradientBytes * m.TrainableParameters
	}
	return weights + m.OptimizerBytes[optimizers[optimizer].state]
}

func (s *search) checkpointBytes() int64 {
	return CheckpointBytes(s.in.Model, s.in.Options.Optimizer, s.in.Options.LoRARank > 0)
}

// seconds is what a run takes whose steps take training.
func (s *search) seconds(d *draft, r schedule, training profile.Range) estimate.RunSeconds {
	times := float64(r.times())
	return estimate.RunSeconds{Training: training, Evaluation: r.one.Times(times),
		Checkpoints: estimate.Saving(s.checkpointBytes()).Times(times),
		StartUp:     estimate.StartUp(d.DataloaderNumWorkers)}
}
