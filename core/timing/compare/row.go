package compare

import (
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// row plans for one machine.
func (p *planner) row(m machine) (Row, error) {
	g := m.card.GPU()
	row := Row{GPU: m.card.Key, Count: m.count, MemoryBytes: g.MemoryTotalBytes, Unverified: m.card.Unverified,
		BudgetBytes: uint64(p.SafetyMargin * float64(g.MemoryTotalBytes)), Precision: p.precision(g), Notes: []string{}, Remedies: []estimate.Remedy{}}
	timer, err := estimate.TimerOf(g)
	if err != nil {
		return row, err
	}
	for _, setups := range p.setups() {
		found, err := p.candidates(m, timer, setups)
		if err != nil && !estimate.TooLarge(err) {
			return row, err
		}
		for _, c := range found {
			bytes, fits, err := p.estimator.Need(p.question(m, c), m.budget(row.BudgetBytes), p.survey)
			if err != nil && !estimate.TooLarge(err) {
				return row, err
			}
			if fits {
				row.take(p, m, c, bytes)
				row.LargestBatch, err = p.largestBatch(m, c, row.BudgetBytes)
				return row, err
			}
		}
	}
	row.Remedies, err = p.estimator.Remedies(p.shortfall(m, row.BudgetBytes))
	return row, err
}

// take writes a candidate into the row.
func (row *Row) take(p *planner, m machine, c candidate, bytes uint64) {
	row.Fits, row.Checkpointing, row.Optimizer, row.LoRARank = true, c.Checkpointing, c.Optimizer, c.Rank
	row.Batch, row.Accumulation, row.Effective, row.PeakBytes = c.batch, c.accumulation, c.batch*c.accumulation*m.count, bytes
	row.Parts, row.Bound = &c.parts, c.parts.Bound()
	_, row.Calibrated = p.factors[m.card.Key]
	step := c.parts.Sum()
	if row.Calibrated {
		step = p.factors[m.card.Key].Apply(step)
	}
	if c.loader.Likely >= c.epoch.Likely {
		row.Bound = "loader"
	}
	hours, run := c.epoch.Times(1.0/3600), c.epoch.Times(p.Epochs/3600)
	rate := timing.Takes(p.lengths.Hours()*3600, c.epoch)
	row.StepS, row.EpochHours, row.RunHours, row.AudioRate = &step, &hours, &run, &rate
	if price, known := p.prices[m.card.Key]; known {
		cost := run.Times(price.Hour * float64(m.count))
		row.Price, row.Cost = &price, &cost
	}
	row.EnergyKWh = timing.Energy(m.card.GPU(), m.count, run)
	row.note(p, m, c)
}

func (row *Row) note(p *planner, m machine, c candidate) {
	g := m.card.GPU()
	if c.Optimizer != p.Optimizer {
		row.Notes = append(row.Notes, fmt.Sprintf("%s instead of %s, with which it does not fit", c.Optimizer, p.Optimizer))
	}
	if row.Precision != or(p.Precision, row.Precision) {
		row.Notes = append(row.Notes, fmt.Sprintf("%s instead of bf16, which compute capability %s lacks", row.Precision, g.ComputeCapability))
	}
	if row.Effective != p.TargetBatchSize {
		row.Notes = append(row.Notes, fmt.Sprintf("the effective batch is %d, not %d: %s share it evenly", row.Effective, p.TargetBatchSize, fault.Plural(m.count, "GPU")))
	}
	if strings.HasPrefix(g.ComputeCapability, "3.") {
		row.Notes = append(row.Notes, "current PyTorch no longer runs on compute capability "+g.ComputeCapability)
	}
}

// largestBatch is the largest micro-batch of a candidate's kind that fits, at least its own.
func (p *planner) largestBatch(m machine, c candidate, budget uint64) (int, error) {
	q := p.question(m, c)
	q.Accumulating = true
	factor, err := p.estimator.Factor(q, m.budget(budget), maxMicro)
	return max(c.batch, p.estimator.Largest(q, m.budget(budget), factor, c.batch, maxMicro)), err
}

// Cards are the whole cards of the catalogue, which one might take instead.
func Cards() (all []estimate.Card) {
	for _, card := range gpus.All() {
		if !card.MIG {
			all = append(all, estimate.Card{Key: card.Key, GPU: card.GPU()})
		}
	}
	return all
}

// shortfall is the training on a machine that it does not fit.
func (p *planner) shortfall(m machine, budget uint64) estimate.Shortfall {
	asked := estimate.Setup{Frozen: p.FreezeFeatureEncoder, Optimizer: p.Optimizer, Rank: p.LoRARank}
	return estimate.Shortfall{Budget: m.budget(budget), Asked: asked, Precision: p.precision, Share: p.share(m.count),
		Longest: p.lengths.Longest(), Margin: p.SafetyMargin, Cards: Cards()}
}
