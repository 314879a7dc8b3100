package runlog

import (
	"math"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
)

// columnNames are the fields of a series that hold columns.
func columnNames(rows reflect.Type) (names []string) {
	for i := range rows.NumField() {
		if rows.Field(i).Type == reflect.TypeFor[Column]() {
			names = append(names, rows.Field(i).Name)
		}
	}
	return names
}

func fieldNames(reading reflect.Type) (names []string) {
	for i := range reading.NumField() {
		names = append(names, reading.Field(i).Name)
	}
	return names
}

func TestReadingsHaveTheFieldsOfTheirSeries(t *testing.T) {
	assert.Equal(t, columnNames(reflect.TypeFor[ActivitySeries]()), fieldNames(reflect.TypeFor[HostReading]()))
	assert.Equal(t, columnNames(reflect.TypeFor[GPUSeries]()), fieldNames(reflect.TypeFor[GPUReading]()))
}

func TestAReadingByNames(t *testing.T) {
	r := NoGPUReading()
	r.PowerW, r.Others = 70, 5
	names := r.Named()
	assert.Len(t, names, len(r.Values(nil)))
	assert.Equal(t, []any{70.0, 5.0, nil}, []any{names["power_w"], names["others_bytes"], names["ecc_uncorrected"]})
	host := NoHostReading()
	assert.Nil(t, host.Named()["sent"], "no such name")
	for _, value := range host.Values(nil) {
		assert.True(t, math.IsNaN(value))
	}
	var rows ActivitySeries
	*rows.Columns()[3] = Column{4}
	assert.Equal(t, Column{4}, rows.HostAvailable)
}
