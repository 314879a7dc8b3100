package diagnosis

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// Block is a part of a run that is looked at alone, as a benchmark's.
type Block struct {
	BegunUnixS    float64     `json:"begun_unix_s"`
	Seconds       float64     `json:"seconds"`
	Steps         []BlockStep `json:"steps"`
	PeakAllocated *float64    `json:"peak_allocated_bytes"`
	PeakReserved  *float64    `json:"peak_reserved_bytes"`
}

// BlockStep is a training step: its time, and what of it was spent waiting for the loader.
type BlockStep struct {
	Seconds  float64 `json:"seconds"`
	WaitingS float64 `json:"waiting_s"`
}

// Readings are what a monitor saw during a benchmark's blocks of steps; null where it read nothing.
type Readings struct {
	GPUUse    *float64 `json:"gpu_use"` // mean share of the time that the busiest GPU computed
	GPUMemory *float64 `json:"gpu_memory_bytes"`
	GPUTotal  *float64 `json:"gpu_total_bytes"`
	RAM       *float64 `json:"ram_bytes"` // of the training's processes
}

// OfBlocks is what a monitor saw during blocks, and what it means; findings need a GPU.
func OfBlocks(s *runlog.Log, run Run, blocks []Block) (Readings, []Finding) {
	part := within(s, blocks)
	readings := Readings{RAM: orNull(highest(part.Activity.TreeRSS))}
	busiest := -1.0
	for i := range part.GPUs {
		use := orNull(meanOf(part.Activity.GPUs[i].Utilization, 1))
		if profile.Or(use, 0) <= busiest {
			continue
		}
		busiest, readings.GPUUse, readings.GPUTotal = profile.Or(use, 0), use, nil
		if total := float64(s.GPUs[i].TotalBytes); total > 0 {
			readings.GPUTotal = &total
		}
		readings.GPUMemory = orNull(highest(part.Memory.GPUUsed[i]))
	}
	findings := []Finding{}
	if len(part.GPUs) == 0 || len(blocks) == 0 {
		return readings, findings
	}
	for _, f := range Of(&part, run) {
		if f.Kind != "healthy" && f.Kind != "too_short" {
			findings = append(findings, f)
		}
	}
	return readings, findings
}

// within is the part of a run log that lies in the blocks, with their steps.
func within(s *runlog.Log, blocks []Block) runlog.Log {
	start := float64(s.StartUnixNanos) / 1e9
	part := s.Within(func(atS float64) bool {
		return slices.ContainsFunc(blocks, func(b Block) bool {
			begin := b.BegunUnixS - start
			return begin <= atS && atS <= begin+b.Seconds
		})
	})
	part.Steps = stepsOf(blocks, start)
	return part
}

func stepsOf(blocks []Block, start float64) (m runlog.StepSeries) {
	for _, b := range blocks {
		atS := b.BegunUnixS - start
		for _, step := range b.Steps {
			atS += step.Seconds
			i := len(m.Number)
			m.Number, m.TimesS = append(m.Number, uint64(i+1)), append(m.TimesS, atS)
			m.Kind, m.Covers = append(m.Kind, runlog.KindTrain), append(m.Covers, 1)
			m.GPU = append(m.GPU, 0)
			for _, column := range m.Columns() {
				*column = append(*column, math.NaN())
			}
			m.SpentS[i], m.WaitedS[i] = step.Seconds, step.WaitingS
			m.PeakAllocated[i] = profile.Or(b.PeakAllocated, math.NaN())
			m.PeakReserved[i] = profile.Or(b.PeakReserved, math.NaN())
		}
	}
	return m
}

func orNull(value float64) *float64 {
	if !finite(value) {
		return nil
	}
	return &value
}
