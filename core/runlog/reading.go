package runlog

import (
	"math"
	"reflect"
)

// HostReading is one entry of Rows without its GPUs; the fields are those of Rows in their order. NaN: not known.
type HostReading struct {
	CPUShare, TreeCPU, BusiestCore        float64
	HostAvailable, SwapUsed               float64
	TreeRSS, WorkersRSS, ShmUsed          float64
	DiskRead, DiskWritten, Received, Sent float64
}

// GPUReading is one entry of GPUSeries; the fields are those of GPUSeries in their order. NaN: not known.
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
func NoHostReading() (r HostReading) { forget(reflect.ValueOf(&r).Elem()); return r }

// NoGPUReading is a reading in which nothing is known.
func NoGPUReading() (r GPUReading) { forget(reflect.ValueOf(&r).Elem()); return r }

func forget(reading reflect.Value) {
	for i := range reading.NumField() {
		reading.Field(i).SetFloat(math.NaN())
	}
}

// Values appends the fields in their order.
func (r *HostReading) Values(to []float64) []float64 { return values(to, reflect.ValueOf(r).Elem()) }

// Values appends the fields in their order.
func (r *GPUReading) Values(to []float64) []float64 { return values(to, reflect.ValueOf(r).Elem()) }

func values(to []float64, reading reflect.Value) []float64 {
	for i := range reading.NumField() {
		to = append(to, reading.Field(i).Float())
	}
	return to
}

// Columns are the columns of the host in the order of HostReading.
func (r *ActivitySeries) Columns() []*Column { return columns(reflect.ValueOf(r).Elem()) }

// Columns are the columns in the order of GPUReading.
func (r *GPUSeries) Columns() []*Column { return columns(reflect.ValueOf(r).Elem()) }

// Columns are the columns in their order.
func (r *StepSeries) Columns() []*Column { return columns(reflect.ValueOf(r).Elem()) }

func columns(rows reflect.Value) (found []*Column) {
	for i := range rows.NumField() {
		if column, is := rows.Field(i).Addr().Interface().(*Column); is {
			found = append(found, column)
		}
	}
	return found
}

// ColumnNames are the names that the columns of a series have in JSON, in the order of Columns.
func ColumnNames[S ActivitySeries | GPUSeries | StepSeries]() (found []string) {
	rows := reflect.TypeFor[S]()
	for i := range rows.NumField() {
		if f := rows.Field(i); f.Type == reflect.TypeFor[Column]() {
			found = append(found, f.Tag.Get("json"))
		}
	}
	return found
}

// Named gives the values of a reading under the names that Rows has for them in JSON; nil for what is not known.
func (r *HostReading) Named() map[string]any {
	return named(ColumnNames[ActivitySeries](), r.Values(nil))
}

// Named gives the values of a reading under the names that GPUSeries has for them in JSON; nil for what is not known.
func (r *GPUReading) Named() map[string]any { return named(ColumnNames[GPUSeries](), r.Values(nil)) }

func named(names []string, values []float64) map[string]any {
	found := map[string]any{}
	for i, name := range names {
		found[name] = nil
		if !math.IsNaN(values[i]) {
			found[name] = values[i]
		}
	}
	return found
}
