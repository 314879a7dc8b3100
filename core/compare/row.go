package compare

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/estimate"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/plan"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// row is the plan for one machine: as requested, or with the first lighter form of the optimizer
// with which it fits; or what to trace first.
func (p *planner) row(m machine) (row Row, wanted *plan.TraceRequest, err error) {
	g := m.card.GPU()
	row = Row{GPU: m.card.Key, Count: m.count, MemoryBytes: g.MemoryTotalBytes,
		Unverified: m.card.Unverified, LoRARank: int64(p.LoRARank),
		BudgetBytes: uint64(p.SafetyMargin * float64(g.MemoryTotalBytes)),
		Settings:    Settings{Precision: cmp.Or(p.precision(g), estimate.Precision(g))},
		Notes:       []string{}, Remedies: []estimate.Remedy{}}
	for _, optimizer := range append([]string{p.Optimizer}, estimate.Lighter(p.Optimizer)...) {
		in := p.inputs(m, optimizer)
		if wanted, err = plan.Next(in); wanted != nil || err != nil {
			return row, wanted, err
		}
		planned, err := plan.Make(in)
		if err == nil {
			row.take(p, m, planned)
			return row, nil, nil
		}
		if fault.From(err).Code != fault.Infeasible {
			return row, nil, err
		}
	}
	row.Remedies, err = plan.Remedies(p.inputs(m, p.Optimizer))
	return row, nil, err
}

// take writes a plan into the row.
func (row *Row) take(p *planner, m machine, c profile.Config) {
	row.Fits, row.Checkpointing, row.EveryNLayers, row.Offload, row.Optimizer =
		true, c.GradientCheckpointing, c.EveryNLayers, c.OffloadCheckpoints, c.Optimizer
	row.Precision, row.Batch, row.Accumulation =
		c.Precision(), c.PerDeviceTrainBatchSize, c.GradientAccumulationSteps
	row.Effective, row.PeakBytes = c.Effective(), uint64(c.PredictedBytes)
	row.MicroBatching, row.LengthHandling = c.MicroBatching, c.LengthHandling
	if t := c.Times; t != nil {
		row.Parts, row.StepS, row.EpochHours, row.AudioRate =
			&t.Parts, &t.StepS, &t.EpochHours, &t.AudioRate
		row.RunHours, row.RunParts = &t.RunHours, &t.RunParts
		row.Bound, row.Calibrated, row.Measured, row.Cost, row.EnergyKWh =
			t.Bound, t.Calibrated, t.Measured, t.CostUSD, t.EnergyKWh
	}
	if price, ok := p.prices[m.card.Key]; ok {
		row.Price = &price
	}
	row.note(p, m)
	row.LargestBatch = max(row.Batch, row.tracedLargest(m, c.MaxLengthS, p.dataset.MaxS))
}

func (row *Row) note(p *planner, m machine) {
	capability := m.card.GPU().ComputeCapability
	if row.Optimizer != p.Optimizer {
		row.Notes = append(row.Notes, fmt.Sprintf("%s instead of %s, with which it does not fit",
			row.Optimizer, p.Optimizer))
	}
	if row.Precision != cmp.Or(p.Precision, row.Precision) {
		row.Notes = append(row.Notes,
			fmt.Sprintf("%s instead of bf16, which compute capability %s lacks", row.Precision,
				capability))
	}
	if row.Effective != p.TargetBatchSize {
		row.Notes = append(row.Notes,
			fmt.Sprintf("the effective batch is %d, not %d: %s share it evenly", row.Effective,
				p.TargetBatchSize, fault.Plural(m.count, "GPU")))
	}
	if row.RunHours == nil {
		row.Notes = append(row.Notes,
			"no published figures of the card, so that times are not known")
	}
	if strings.HasPrefix(capability, "3.") {
		row.Notes = append(row.Notes, "current PyTorch no longer runs on compute capability "+
			capability)
	}
}

// maxMicro is the largest micro-batch that is looked for: above what any GPU of the catalogue needs
// to be busy, and has room for of short texts.
const maxMicro = 8192
