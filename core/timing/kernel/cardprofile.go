package kernel

import (
	"cmp"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing"
)

// Profile is what a table of measured kernels shows of a card: how to correct the model's times on
// it.
type Profile struct {
	GPU       string   `json:"gpu"`        // key of the catalogue
	Date      string   `json:"date"`       // of the measurement, 2026-01-31
	LaunchS   float64  `json:"launch_s"`   // of a kernel on the GPU beside its work
	DispatchS float64  `json:"dispatch_s"` // of the CPU for one kernel
	Factors   []Factor `json:"factors"`    // by group and type
}

// Factor is measured over predicted time of one group of kernels in one type, with its spread.
type Factor struct {
	Group string `json:"group"` // a kind; products and softmax by their kernels, backward apart
	DType DType  `json:"dtype"`
	timing.Calibration
}

type groupKey struct {
	group string
	dtype DType
}

// group is the operations that one factor holds for.
func (o Operation) group() groupKey {
	name := string(o.Kind)
	switch {
	case o.Kind == GEMM:
		name = o.table()
	case o.Kind == Softmax:
		name = o.class()
	case o.Kind.Product() && o.Phase == Backward:
		name += "_backward"
	}
	return groupKey{name, o.DType}
}

// fewestOfGroup rows are enough for a factor. A row counts when it takes at least launchBound times
// its launches.
const fewestOfGroup, launchBound = 3, 2.0

// Profile fits a factor for each group: the median of measured over predicted time. A group of few
// rows has none. Errors: those of card, and InvalidArgument for rates that the card cannot have and
// for a table without products or elementwise kernels.
func (t Table) Profile() (Profile, error) {
	card, err := t.card()
	if err != nil {
		return Profile{}, err
	}
	m := New(card)
	m.launch = 0
	if err := t.checkRates(m); err != nil {
		return Profile{}, err
	}
	p := Profile{GPU: card.Key, Date: t.Date, LaunchS: t.LaunchS, DispatchS: t.DispatchS,
		Factors: []Factor{}}
	predicted, measured := map[groupKey][]profile.Range{}, map[groupKey][]float64{}
	for _, row := range t.Kernels {
		launches := t.LaunchS * row.launches()
		if row.Seconds < launchBound*launches {
			continue
		}
		row.Times = 1
		expected, err := m.Seconds(row.Operation)
		if err != nil {
			return Profile{}, err
		}
		key := row.group()
		predicted[key], measured[key] = append(predicted[key], profile.Range{Likely: expected}),
			append(measured[key], row.Seconds-launches)
	}
	for key, rows := range measured {
		if len(rows) < fewestOfGroup {
			continue
		}
		c, err := timing.Calibrate(predicted[key], rows)
		if err != nil {
			return Profile{}, err
		}
		p.Factors = append(p.Factors, Factor{key.group, key.dtype, c})
	}
	slices.SortFunc(p.Factors, func(a, b Factor) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.DType, b.DType))
	})
	if !p.has("linear") || !p.has(string(Elementwise)) {
		return Profile{}, t.wrong("too few matrix products or elementwise kernels")
	}
	return p, cmp.Or(t.checkBandwidth(m, p), p.Check())
}

func (p Profile) has(group string) bool {
	return slices.ContainsFunc(p.Factors, func(f Factor) bool { return f.Group == group })
}

// Factors that a card's kernels can differ by from the model.
const leastFactor, mostFactor = 0.02, 50.0

// Check rejects profiles that no table yields. Errors: InvalidArgument.
func (p Profile) Check() error {
	if err := checkMeasured(p.GPU, p.Date, p.LaunchS, p.DispatchS); err != nil {
		return err
	}
	for _, f := range p.Factors {
		if !(f.Low >= leastFactor && f.Low <= f.Factor && f.Factor <= f.High &&
			f.High <= mostFactor) || f.DType.size() == 0 {
			return fault.New(fault.InvalidArgument, profileAgain,
				"the profile of %s has the factor %v, %v to %v, for %q in %q", fault.Shorten(p.GPU),
				f.Factor, f.Low, f.High, fault.Shorten(f.Group), fault.Shorten(string(f.DType)))
		}
	}
	return nil
}

// Corrected is the model by what was measured of its card. Errors: those of Profile.Check,
// InvalidArgument for another card's profile.
func (m *Model) Corrected(p Profile) (*Model, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.GPU != m.card.Key {
		return nil, fault.New(fault.InvalidArgument, "pass the table that was measured on a "+
			m.card.Key, "the kernels were measured on a %s, and the plan is for a %s",
			fault.Shorten(p.GPU), m.card.Key)
	}
	corrected := *m
	corrected.launch, corrected.factors =
		p.LaunchS, make(map[groupKey]timing.Calibration, len(p.Factors))
	corrected.dispatch = &profile.Range{Low: p.DispatchS, Likely: p.DispatchS, High: p.DispatchS}
	for _, f := range p.Factors {
		corrected.factors[groupKey{f.Group, f.DType}] = f.Calibration
	}
	return &corrected, nil
}
