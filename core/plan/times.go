package plan

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
	"github.com/asrconfig/asrconfig-go/core/units"
)

// writeTimes predicts how long the training takes, where the device's speed is known.
func (s *search) writeTimes(d *draft, f evaluated, planned schedule) {
	if !f.throughput.timed {
		return
	}
	hours := s.epochSeconds(d, f.chosen).Times(1.0 / 3600)
	parts, run := s.seconds(d, planned, hours.Times(3600*d.NumTrainEpochs)).Hours()
	loader := s.loading(s.clips.seconds(), d.DataloaderNumWorkers)
	step := f.throughput.step(f.chosen)
	t := &profile.Times{EpochHours: hours, RunHours: run, RunParts: parts,
		StepS:     hours.Times(3600 / float64(f.chosen.steps)),
		AudioRate: timing.Takes(s.clips.seconds(), hours.Times(3600)),
		Parts:     step, Bound: step.Bound(),
		Calibrated: s.in.Options.Calibration != nil, Measured: f.throughput.slowest.MeasuredOn}
	if loader.Likely > f.chosen.epoch.Likely {
		t.Bound = "loader"
		slow := fmt.Sprintf("The loader needs %s for an epoch, the GPU %s",
			units.Duration(loader.Likely), units.Duration(f.chosen.epoch.Likely))
		if s.rows().AreTexts() {
			d.warn(slow + ": tokenize the texts before the training, or take a machine with more " +
				"cores.")
		} else {
			d.warn(slow + ": store the audio decoded and at the model's sampling rate, or take a " +
				"machine with more cores.")
		}
	}
	if price := s.in.Options.PriceUSDHour; price != nil {
		cost := run.Times(*price * float64(s.pool.count))
		t.CostUSD = &cost
	}
	t.EnergyKWh = timing.Energy(s.budget.gpu, s.pool.count, run)
	d.Times = t
}
