package kernel

import (
	"fmt"
	"slices"
	"time"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/jsontext"
)

// TableVersion is the version of a table's format; others are rejected.
const TableVersion = 1

const (
	minRows        = 60    // fewer do not describe a card
	maxKernelS     = 100.0 // seconds of one kernel
	minLaunchS     = 1e-7  // seconds of a launch or a dispatch
	maxLaunchS     = 1e-2
	maxOfPeak      = 2.0 // times the published rate: a faster table is of another card
	maxCacheGain   = 5.0 // times the bandwidth of the memory: 4.0 was read on a T4
	maxOfBandwidth = 1.1 // times the published one, as the median of kernels that no cache holds
	uncached       = 2.0 // times the L2 cache: of a larger kernel it holds too little to matter
	maxApart       = 3.0 // times that the factors of elementwise kernels and copies may differ by
)

const profileAgain = "measure it again on an idle card: asrconfig profile-gpu"

// Table is what `asrconfig profile-gpu` measured on one card.
type Table struct {
	Version     int     `json:"version"`      // of the format; 1
	GPU         string  `json:"gpu"`          // the driver's name
	MemoryBytes uint64  `json:"memory_bytes"` // of the card
	Driver      string  `json:"driver"`
	Torch       string  `json:"torch"`
	CUDA        string  `json:"cuda"`
	Date        string  `json:"date"`     // 2026-01-31
	LaunchS     float64 `json:"launch_s"` // seconds of a queued kernel with almost no work
	// seconds of the CPU for one kernel, in the forward and backward pass of a layer
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

// ReadTable reads a table and checks what can be checked without the card. Errors: Corrupt for text
// that is not a table, InvalidArgument for impossible values.
func ReadTable(text []byte) (Table, error) {
	var t Table
	if err := jsontext.Decode(text, &t); err != nil {
		return Table{}, fault.Wrap(err, fault.Corrupt, profileAgain, "reading the table of kernels")
	}
	return t, t.check()
}

func (t Table) check() error {
	if t.Version != TableVersion {
		return fault.New(fault.InvalidArgument, "update asrconfig-go, or "+profileAgain,
			"a table of kernels of version %d; version %d is expected", t.Version, TableVersion)
	}
	if len(t.Kernels) < minRows {
		return t.wrong("%d kernels; at least %d are needed", len(t.Kernels), minRows)
	}
	if err := checkMeasured(t.GPU, t.Date, t.LaunchS, t.DispatchS); err != nil {
		return err
	}
	for _, row := range t.Kernels {
		if err := t.checkRow(row); err != nil {
			return err
		}
	}
	return nil
}

// checkMeasured rejects values that neither a table nor a profile can have.
func checkMeasured(gpu, date string, launch, dispatch float64) error {
	wrong := func(field string, value any) error {
		return fault.New(fault.InvalidArgument, profileAgain, "the measurement of %s has %s %v",
			fault.Shorten(gpu), field, value)
	}
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return wrong("the date", fault.Shorten(date))
	}
	if !(launch >= minLaunchS && launch <= maxLaunchS) {
		return wrong("seconds of a launch", launch)
	}
	if !(dispatch >= minLaunchS && dispatch <= maxLaunchS) {
		return wrong("seconds of a dispatch", dispatch)
	}
	return nil
}

func (t Table) wrong(format string, values ...any) error {
	return fault.New(fault.InvalidArgument, profileAgain, "the table of kernels of %s has %s",
		fault.Shorten(t.GPU), fmt.Sprintf(format, values...))
}

func (t Table) checkRow(row Row) error {
	if err := row.Operation.Check(); err != nil {
		return err
	}
	if !(row.Low > 0 && row.Low <= row.Seconds && row.Seconds <= row.High &&
		row.High <= maxKernelS) {
		return t.wrong("%v seconds for %q, between %v and %v", row.Seconds,
			fault.Shorten(row.Name), row.Low, row.High)
	}
	return nil
}

// card returns the card that the table names. Errors: NotFound for a card that is not in the
// catalogue, Unsupported for one without published figures.
func (t Table) card() (Card, error) {
	entry, err := gpus.Find(t.GPU, t.MemoryBytes)
	if err != nil {
		return Card{}, err
	}
	return CardOf(entry)
}

// checkRates rejects rows that are faster than the card can be.
func (t Table) checkRates(m *Model) error {
	for _, row := range t.Kernels {
		peak := maxOfPeak * m.Rate(row.DType)
		if row.Kind.Product() && row.FLOPs()/row.Seconds > peak {
			return t.wrong("%.3g FLOP/s for %q: more than %v times the peak of a %s",
				row.FLOPs()/row.Seconds, fault.Shorten(row.Name), maxOfPeak, m.card.Key)
		}
		limit := maxOfPeak
		if row.Bytes() <= m.card.L2 {
			limit *= maxCacheGain
		}
		if row.Bytes()/row.Seconds > limit*m.card.Bandwidth {
			return t.wrong("%.3g bytes/s for %q: more than %v times the bandwidth of a %s",
				row.Bytes()/row.Seconds, fault.Shorten(row.Name), limit, m.card.Key)
		}
	}
	return nil
}

// checkBandwidth rejects kernels that move bytes faster than the memory, or that imply two
// different bandwidths: then something else ran on the card, or its clocks changed, during the
// measurement. Errors: InvalidArgument.
func (t Table) checkBandwidth(m *Model, p Profile) error {
	rates := map[Kind][]float64{}
	for _, row := range t.Kernels {
		if !row.Kind.Product() && row.Bytes() > uncached*m.card.L2 {
			rates[row.Kind] = append(rates[row.Kind], row.Bytes()/row.Seconds/m.card.Bandwidth)
		}
	}
	for kind, shares := range rates {
		if share := median(shares); share > maxOfBandwidth {
			return t.wrong("%s kernels at %.0f %% of the published bandwidth of a %s", kind,
				100*share, m.card.Key)
		}
	}
	copies := map[DType]float64{}
	for _, f := range p.Factors {
		if f.Group == string(Copy) {
			copies[f.DType] = f.Factor
		}
	}
	for _, f := range p.Factors {
		copying, measured := copies[f.DType]
		if f.Group != string(Elementwise) || !measured {
			continue
		}
		if apart := f.Factor / copying; max(apart, 1/apart) > maxApart {
			return t.wrong("elementwise kernels in %s that take %.2f times the expected time, "+
				"and copies that take %.2f times: one memory cannot do both", f.DType, f.Factor,
				copying)
		}
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
