package memory

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Determined reports whether a trace's formulas answer a question exactly. Where they do not, the
// shape is to be traced itself.
type Determined struct {
	Exactly bool `json:"exactly"`
	// largest share of a segment's memory by which formulas may be off, 0 to 1
	Doubt float64 `json:"doubt"`
	Why   string  `json:"why"` // not exactly, as a sentence; "" otherwise
}

// negligible is the share of memory that may be uncertain in an answer that counts as exact:
// workspaces that follow a kernel's rounding, and what depends on values.
const negligible = 0.002

// Determined looks at the formulas of the segments that Simulate would play. Errors:
// InvalidArgument, not Unsupported.
func (m *Model) Determined(r Request) (Determined, error) {
	plan, err := m.plan(r)
	if err != nil {
		if failure := fault.From(err); failure.Code == fault.Unsupported {
			return Determined{Doubt: 1, Why: failure.Message}, nil
		}
		return Determined{}, err
	}
	result := Determined{}
	checked := map[*template.Template]bool{}
	rules, model := r.GPU.Rules(), uint64(0)
	for _, s := range plan {
		if checked[s.Template] {
			continue
		}
		checked[s.Template] = true
		if s.Template.Kind == trace.KindLoad {
			for _, n := range s.Recorded {
				model += uint64(n)
			}
		}
		if s.Recorded != nil || s.Template.IsCertain() {
			continue
		}
		share, err := m.doubt(s, model, rules)
		if err != nil {
			return Determined{}, err
		}
		result.Doubt = max(result.Doubt, share)
	}
	if result.Exactly = result.Doubt <= negligible; !result.Exactly {
		result.Why = "no formula of batch, length and labels gives the sizes at all traced shapes"
	}
	return result, nil
}

// doubt is the share of a segment's memory, with the model's, that its formulas leave open.
func (m *Model) doubt(s replay.Segment, model uint64, rules reduction.Rules) (float64, error) {
	p, err := m.templates.Variables.At(s.Shape)
	if err != nil {
		return 0, err
	}
	bytes, open := s.Template.Live(p, rules)
	return min(1, float64(open)/float64(max(1, bytes+model))), nil
}
