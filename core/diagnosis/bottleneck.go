package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/units"
)

const (
	paddedShare    = 0.15 // of what is computed
	optimizerShare = 0.25 // of a step
	otherShare     = 0.15
	queueingShare  = 0.9 // of the GPU's time: it waits for its next kernel
)

// Measured is what a benchmark measured of a plan's steps. Shares are 0 to 1; null: not known.
type Measured struct {
	Shares        StepShares `json:"shares"`
	Padding       *float64   `json:"padding"`  // of what is computed
	FixedS        *float64   `json:"fixed_s"`  // seconds that every input is padded to
	Queueing      *float64   `json:"queueing"` // the CPU's time to queue kernels, of the GPU's
	Checkpointing bool       `json:"checkpointing"`
	GPU           bool       `json:"gpu"`
	Tried         []Tried    `json:"tried"`
}

// StepShares are the parts of a step's time.
type StepShares struct {
	Waiting   float64 `json:"waiting"`
	Forward   float64 `json:"forward"`
	Backward  float64 `json:"backward"`
	Optimizer float64 `json:"optimizer"`
	Other     float64 `json:"other"`
}

// Tried is a change to the plan that was measured.
type Tried struct {
	Name    string `json:"name"`   // "workers 4"
	Change  string `json:"change"` // what to set
	Better  bool   `json:"better"` // beyond doubt
	Gain    Gain   `json:"gain"`   // in speed
	CPUGain *Gain  `json:"cpu_gain"`
}

// Gain is a ratio of speeds, with its lowest and highest over the rounds.
type Gain struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Count  int     `json:"count"` // rounds
}

func (g Gain) String() string { return fmt.Sprintf("%.2f (%.2f to %.2f)", g.Median, g.Low, g.High) }

// Bottleneck is what takes most of a step's time.
type Bottleneck struct {
	Finding Finding  `json:"finding"`
	Try     []string `json:"try"` // options that may help
	// what to change, with its measured gain; or that nothing of what was tried helps
	NextChange string `json:"next_change"`
}

type cause struct {
	kind, title string
	lost        float64 // share of a step, for the order
	change      string
	try         []string
}

// BottleneckOf finds the bottleneck by the shares of a step.
func BottleneckOf(m Measured) (Bottleneck, error) {
	c := slices.MaxFunc(m.causes(), func(a, b cause) int { return cmp.Compare(a.lost, b.lost) })
	severity := runlog.SeverityWarn
	if c.kind == "compute" {
		severity = Info
	}
	return Bottleneck{Finding{Kind: c.kind, Severity: severity, Title: c.title,
		Evidence: m.evidence(), Change: c.change}, c.try, m.nextChange(c)}, nil
}

func (m Measured) causes() []cause {
	s, device, precise := m.Shares, "training", []string{"precision", "attention"}
	if m.GPU {
		device, precise = "GPU", []string{"precision", "compile", "attention"}
	}
	model, padding := s.Forward+s.Backward, profile.Or(m.Padding, 0)
	var causes []cause
	for _, c := range []struct {
		cause
		holds bool
	}{
		{cause{"compute", "Most of a step is the model's own computation", 0,
			"a faster device, a smaller model or frozen layers would help", precise}, true},
		{cause{"loader", fmt.Sprintf("The %s waits for the data loader", device), s.Waiting,
			"let more workers prepare batches, or prepare them once with dataset.map(...)",
			[]string{"workers", "prefetch", "persistent"}}, s.Waiting >= waitShare},
		{cause{"padding", "Much of what is computed is padding", padding * model,
			"make steps of clips of similar length", []string{"order"}},
			padding >= paddedShare && m.FixedS == nil},
		{cause{"optimizer", "The optimizer takes much of a step", s.Optimizer,
			"accumulate more clips before each step, or take a fused optimizer", []string{}},
			s.Optimizer >= optimizerShare},
		{cause{"trainer", "Much of a step is neither model nor optimizer", s.Other,
			"look at a profile (profile=DIR): callbacks, copies to the device, waiting for the GPU",
			[]string{"pin", "compile"}}, s.Other >= otherShare},
		{cause{"small_batch", "The GPU waits for its next kernel: steps are too small for it",
			model / 2, "compile the model, or compute more clips at once",
			[]string{"compile", "attention"}}, profile.Or(m.Queueing, 0) >= queueingShare},
		{cause{"checkpointing", "The forward pass is computed twice, to save memory", s.Forward,
			"keep activations where memory allows it", []string{"checkpointing"}}, m.Checkpointing},
	} {
		if c.holds {
			causes = append(causes, c.cause)
		}
	}
	return causes
}

func (m Measured) evidence() string {
	s := m.Shares
	text := fmt.Sprintf("of a step: waiting %s, forward %s, backward %s, optimizer %s, other %s",
		units.Percent(s.Waiting), units.Percent(s.Forward), units.Percent(s.Backward),
		units.Percent(s.Optimizer), units.Percent(s.Other))
	if m.Padding != nil {
		text += fmt.Sprintf("; %s of what is computed is padding", units.Percent(*m.Padding))
		if m.FixedS != nil {
			text += fmt.Sprintf(" to the %.3g s that the model always hears", *m.FixedS)
		}
	}
	if m.Queueing != nil {
		text += fmt.Sprintf("; queueing takes the CPU %s of the GPU's time",
			units.Percent(*m.Queueing))
	}
	return text
}

func (m Measured) nextChange(c cause) string {
	best, names := Tried{}, []string{}
	for _, t := range m.Tried {
		names = append(names, t.Name)
		if t.Better && t.Gain.Median > best.Gain.Median {
			best = t
		}
	}
	switch {
	case best.Better:
		text := fmt.Sprintf("set %s: %s times as fast over the rounds", best.Change, best.Gain)
		if best.CPUGain != nil {
			text += fmt.Sprintf("; by processor time %s", best.CPUGain)
		}
		return text
	case len(names) > 0:
		return fmt.Sprintf("no tried change is clearly faster (%s); %s", strings.Join(names, ", "),
			c.change)
	}
	return c.change + " (not measured)"
}
