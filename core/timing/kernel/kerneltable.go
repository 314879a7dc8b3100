package kernel

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
)

// Table is what `asrconfig profile-gpu` measured on one card.
type Table struct {
	Version     int     `json:"version"`      // of the format; 1
	GPU         string  `json:"gpu"`          // the driver's name
	MemoryBytes uint64  `json:"memory_bytes"` // of the card
	Driver      string  `json:"driver"`
	Torch       string  `json:"torch"`
	CUDA        string  `json:"cuda"`
	Date        string  `json:"date"`     // 2026-01-31
	LaunchS     float64 `json:"launch_s"` // of a kernel with next to nothing to do, behind others
	// of the CPU for one kernel of a layer's forward and backward pass
	DispatchS float64 `json:"dispatch_s"`
	Kernels   []Row   `json:"kernels"`
}

// Row is one kernel's time.
type Row struct {
	Operation
	Seconds float64 `json:"seconds"` // of one run, the median
	Low     float64 `json:"low_s"`   // 10th percentile of the runs
	High    float64 `json:"high_s"`  // 90th percentile
}

// TableVersion is that of a table's format; readers refuse others.
const TableVersion = 1

const (
	mostTableBytes      = 4 << 20
	fewestRows          = 60 // that tell of a card
	mostRows            = 10_000
	longestKernel       = 100.0 // seconds
	shortestLaunch      = 1e-7  // seconds, of launches and dispatches
	longestLaunch       = 1e-2
	mostOfPeak          = 2.0 // measured rates above are not this card's
	mostCacheGain       = 5.0 // times the bandwidth of the memory: 4.0 was read on a T4
	farthestRepetitions = 3.0 // between two rows of one operation
)

const profileAgain = "measure it again on an idle card: asrconfig profile-gpu"

// ReadTable reads a table and checks what can be without knowing the card. Errors: Corrupt for what
// is no table, and those of check.
func ReadTable(text []byte) (Table, error) {
	if len(text) > mostTableBytes {
		return Table{}, fault.New(fault.Corrupt, profileAgain,
			"a table of kernels with %d bytes; 4 MiB are the most", len(text))
	}
	var t Table
	if err := jsontext.Decode(text, &t); err != nil {
		return Table{}, fault.Wrap(err, fault.Corrupt, profileAgain, "reading the table of kernels")
	}
	return t, t.check()
}

func (t Table) check() error {
	if t.Version != TableVersion {
		return fault.New(fault.InvalidArgument, "update asrconfig-go, or "+profileAgain,
			"a table of kernels of version %d; version %d is known", t.Version, TableVersion)
	}
	if len(t.Kernels) < fewestRows || len(t.Kernels) > mostRows {
		return t.wrong("%d kernels; %d to %d tell of a card", len(t.Kernels), fewestRows, mostRows)
	}
	if err := checkMeasured(t.GPU, t.Date, t.LaunchS, t.DispatchS); err != nil {
		return err
	}
	times := make(map[Operation]float64, len(t.Kernels))
	for _, row := range t.Kernels {
		if err := t.checkRow(row, times); err != nil {
			return err
		}
	}
	return nil
}

// checkMeasured rejects values that neither a table nor a profile can have.
func checkMeasured(gpu, date string, launch, dispatch float64) error {
	wrong := func(field string, value any) error {
		return fault.New(fault.InvalidArgument, profileAgain, "what was measured of %s has %s %v",
			fault.Shorten(gpu), field, value)
	}
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return wrong("the date", fault.Shorten(date))
	}
	if !(launch >= shortestLaunch && launch <= longestLaunch) {
		return wrong("seconds of a launch", launch)
	}
	if !(dispatch >= shortestLaunch && dispatch <= longestLaunch) {
		return wrong("seconds of a dispatch", dispatch)
	}
	return nil
}

func (t Table) wrong(format string, values ...any) error {
	return fault.New(fault.InvalidArgument, profileAgain, "the table of kernels of %s has %s",
		fault.Shorten(t.GPU), fmt.Sprintf(format, values...))
}

// checkRow refuses a row that is no time, or that another one contradicts.
func (t Table) checkRow(row Row, times map[Operation]float64) error {
	if err := row.Check(); err != nil {
		return err
	}
	name := fault.Shorten(row.Name)
	if !(row.Seconds > 0 && row.Seconds <= longestKernel) {
		return t.wrong("%v seconds for %q", row.Seconds, name)
	}
	if !(row.Low > 0 && row.Low <= row.Seconds && row.Seconds <= row.High &&
		row.High <= longestKernel) {
		return t.wrong("%v seconds for %q, between %v and %v", row.Seconds, name, row.Low, row.High)
	}
	row.Times = 0
	before, repeated := times[row.Operation]
	if repeated && math.Abs(math.Log(row.Seconds/before)) > math.Log(farthestRepetitions) {
		return t.wrong("%v and %v seconds for the same %q: more than %v times apart", before,
			row.Seconds, name, farthestRepetitions)
	}
	times[row.Operation] = row.Seconds
	return nil
}

// card is the one that the table names. Errors: NotFound for a card that the catalogue lacks,
// Unsupported without figures.
func (t Table) card() (Card, error) {
	entry, ok := gpus.Match(t.GPU, t.MemoryBytes)
	if !ok {
		var err error
		if entry, _, err = gpus.Parse(t.GPU); err != nil {
			return Card{}, err
		}
	}
	return CardOf(entry)
}

// checkRates refuses rows that are faster than the card can be.
func (t Table) checkRates(m *Model) error {
	for _, row := range t.Kernels {
		if peak := mostOfPeak * m.Rate(row.DType); row.product() && row.FLOPs()/row.Seconds > peak {
			return t.wrong("%.3g FLOP/s for %q: more than %v times the peak of a %s",
				row.FLOPs()/row.Seconds, fault.Shorten(row.Name), mostOfPeak, m.card.Key)
		}
		most := mostOfPeak
		if row.Bytes() <= m.card.L2 {
			most *= mostCacheGain
		}
		if row.Bytes()/row.Seconds > most*m.card.Bandwidth {
			return t.wrong("%.3g bytes/s for %q: more than %v times the bandwidth of a %s",
				row.Bytes()/row.Seconds, fault.Shorten(row.Name), most, m.card.Key)
		}
	}
	return nil
}

const (
	// of what is published, as the median of a kind's kernels that no cache holds
	mostOfBandwidth = 1.1
	uncached        = 2.0 // times the L2 cache: what it holds of the kernel before counts little
	// between elementwise kernels and copies, each against what is expected of it
	farthestKinds = 3.0
)

// checkBandwidth rejects kernels that move bytes faster than the memory, or that imply two
// different bandwidths: then something else ran on the card, or its clocks changed, during the
// measurement. Errors: InvalidArgument.
func (t Table) checkBandwidth(m *Model, p Profile) error {
	rates := map[Kind][]float64{}
	for _, row := range t.Kernels {
		if !row.product() && row.Bytes() > uncached*m.card.L2 {
			rates[row.Kind] = append(rates[row.Kind], row.Bytes()/row.Seconds/m.card.Bandwidth)
		}
	}
	for kind, shares := range rates {
		if share := median(shares); share > mostOfBandwidth {
			return t.wrong("%s kernels at %.0f %% of the bandwidth that is published of a %s", kind,
				100*share, m.card.Key)
		}
	}
	for _, f := range p.Factors {
		copies, measured := p.factor(groupKey{string(Copy), f.DType})
		if f.Group != string(Elementwise) || !measured {
			continue
		}
		if apart := f.Factor / copies; max(apart, 1/apart) > farthestKinds {
			return t.wrong("elementwise kernels in %s that take %.2f times what is expected, and "+
				"copies that take %.2f times: one memory cannot do both", f.DType, f.Factor, copies)
		}
	}
	return nil
}

func (p Profile) factor(key groupKey) (float64, bool) {
	i := slices.IndexFunc(p.Factors, func(f Factor) bool {
		return f.Group == key.group && f.DType == key.dtype
	})
	if i < 0 {
		return 0, false
	}
	return p.Factors[i].Factor, true
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
