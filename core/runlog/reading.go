package runlog

import (
	"bytes"
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// HostReading is one entry of ActivitySeries without its GPUs; the fields are those of
// ActivitySeries in their order. NaN: not known.
type HostReading struct {
	CPUShare, TreeCPU, BusiestCore        float64
	HostAvailable, SwapUsed               float64
	TreeRSS, WorkersRSS, ShmUsed          float64
	DiskRead, DiskWritten, Received, Sent float64
}

// GPUReading is one entry of GPUSeries; the fields are those of GPUSeries in their order. NaN: not
// known.
type GPUReading struct {
	Utilization, MemoryBusy       float64
	SMActive, TensorActive        float64
	PowerW, Temperature, ClockMHz float64
	Throttle                      float64
	PCIeIn, PCIeOut, NVLink       float64
	ECC                           float64
	Others                        float64
}

// NoHostReading is a reading in which nothing is known.
func NoHostReading() (r HostReading) { forget(fields[float64](&r)); return r }

// NoGPUReading is a reading in which nothing is known.
func NoGPUReading() (r GPUReading) { forget(fields[float64](&r)); return r }

func forget(figures []*float64) {
	for _, figure := range figures {
		*figure = math.NaN()
	}
}

// Values appends the fields in their order.
func (r *HostReading) Values(to []float64) []float64 { return values(to, fields[float64](r)) }

// Values appends the fields in their order.
func (r *GPUReading) Values(to []float64) []float64 { return values(to, fields[float64](r)) }

func values(to []float64, figures []*float64) []float64 {
	for _, figure := range figures {
		to = append(to, *figure)
	}
	return to
}

// Columns are the columns of the host in the order of HostReading.
func (r *ActivitySeries) Columns() []*Column { return fields[Column](r) }

// Columns are the columns in the order of GPUReading.
func (r *GPUSeries) Columns() []*Column { return fields[Column](r) }

// Columns are the columns in their order.
func (r *StepSeries) Columns() []*Column { return fields[Column](r) }

// fields are those of a type in a struct, in their order.
func fields[T any](of any) (pointers []*T) {
	row := reflect.ValueOf(of).Elem()
	for i := range row.NumField() {
		if field, is := row.Field(i).Addr().Interface().(*T); is {
			pointers = append(pointers, field)
		}
	}
	return pointers
}

// ColumnNames are the names that the columns of a series have in JSON, in the order of Columns.
func ColumnNames[S ActivitySeries | GPUSeries | StepSeries]() (names []string) {
	rows := reflect.TypeFor[S]()
	for i := range rows.NumField() {
		if f := rows.Field(i); f.Type == reflect.TypeFor[Column]() {
			names = append(names, f.Tag.Get("json"))
		}
	}
	return names
}

// Named returns the values of a reading by the JSON names of ActivitySeries; nil for what is not
// known.
func (r *HostReading) Named() map[string]any {
	return named(ColumnNames[ActivitySeries](), r.Values(nil))
}

// Named returns the values of a reading by the JSON names of GPUSeries; nil for what is not known.
func (r *GPUReading) Named() map[string]any {
	return named(ColumnNames[GPUSeries](), r.Values(nil))
}

func named(names []string, values []float64) map[string]any {
	reading := map[string]any{}
	for i, name := range names {
		reading[name] = nil
		if !math.IsNaN(values[i]) {
			reading[name] = values[i]
		}
	}
	return reading
}

// Column is a list of numbers some of which are not known: NaN in Go, null in JSON. Bytes are exact
// up to 8 PiB.
type Column []float64

// largest is beyond every figure of a run, and sums, products and squares of figures up to it are
// finite.
const largest = 1e30

// MarshalJSON writes a list; numbers without a fraction have no point.
func (c Column) MarshalJSON() ([]byte, error) { return c.append(make([]byte, 0, 2+8*len(c))), nil }

func (c Column) append(out []byte) []byte {
	out = append(out, '[')
	for i, value := range c {
		if i > 0 {
			out = append(out, ',')
		}
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0):
			out = append(out, "null"...)
		case value == math.Trunc(value) && math.Abs(value) < 1<<53:
			out = strconv.AppendInt(out, int64(value), 10)
		default:
			out = strconv.AppendFloat(out, value, 'g', 6, 64)
		}
	}
	return append(out, ']')
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Column) UnmarshalJSON(text []byte) error {
	if bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
		*c = nil
		return nil
	}
	var values []*float64
	if err := json.Unmarshal(text, &values); err != nil {
		return fault.Wrap(err, fault.InvalidArgument, "a column is a list of numbers and nulls",
			"reading a column")
	}
	*c = make(Column, len(values))
	for i, value := range values {
		(*c)[i] = math.NaN()
		if value != nil {
			if math.Abs(*value) > largest {
				return fault.New(fault.Corrupt, "the file is damaged: take another copy",
					"reading a column: %g is out of range", *value)
			}
			(*c)[i] = *value
		}
	}
	return nil
}

const (
	outcomeMarginS = 2.0  // an alert and what cleared it are seen a second apart
	usedUp         = 0.01 // of the whole: what is left when something is used up
)

// Outcomes of an alert.
const (
	OutcomeTrue    = "came true" // memory ran out, or what was warned of was used up
	OutcomeAverted = "averted"   // cleared by a clean-up
	OutcomeCleared = "cleared"
	OutcomeHeld    = "held" // until the end
)

// hostWords are what the guard, PyTorch and Python say when the host's memory ran out.
var hostWords = []string{"(loading)", "DataLoader worker", "MemoryError"}

// Outcome is what became of an alert of the log, and after how many seconds.
func (s *Log) Outcome(a Alert) (outcome string, after *float64) {
	end, trueAt := *cmp.Or(a.ClearedS, &s.DurationS), math.Inf(1)
	within := func(atS float64) bool { return a.AtS <= atS && atS <= end+outcomeMarginS }
	outcome = OutcomeCleared
	for _, e := range s.Events {
		switch {
		case !within(e.AtS):
		case e.ranOutOf(a):
			trueAt = min(trueAt, e.AtS)
		case e.Kind == EventCleanUp:
			outcome = OutcomeAverted
		}
	}
	times, remaining, total := s.left(a.Kind)
	for i, left := range remaining {
		if total > 0 && within(times[i]) && left <= usedUp*total {
			trueAt = min(trueAt, times[i])
			break
		}
	}
	switch {
	case !math.IsInf(trueAt, 1):
		trueAt -= a.AtS
		return OutcomeTrue, &trueAt
	case a.ClearedS == nil:
		return OutcomeHeld, nil
	}
	end -= a.AtS
	return outcome, &end
}

// ranOutOf reports whether the memory that ran out is that of the alert. An event of no GPU may be
// any GPU's, or the host's.
func (e Event) ranOutOf(a Alert) bool {
	ofHost := e.GPU < 0 && slices.ContainsFunc(hostWords, func(words string) bool {
		return strings.Contains(e.Text, words)
	})
	switch {
	case e.Kind != EventOOM:
		return false
	case a.GPU < 0:
		return ofHost
	}
	return e.GPU == a.GPU || e.GPU < 0 && !ofHost
}

// left is what an alert of the host is about that was left, and all of it.
func (s *Log) left(kind string) (times []float64, remaining Column, total float64) {
	activity := &s.Activity
	switch kind {
	case AlertHostRAM, AlertWorkersRAM:
		return activity.TimesS, activity.HostAvailable, float64(s.Host.TotalBytes)
	case AlertShm:
		total = float64(s.Host.ShmTotalBytes)
		for _, used := range activity.ShmUsed {
			remaining = append(remaining, total-used)
		}
	}
	return activity.TimesS, remaining, total
}
