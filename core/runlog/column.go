package runlog

import (
	"bytes"
	"math"
	"strconv"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Column is a list of numbers some of which are not known: NaN in Go, null in JSON. Bytes are exact up to 8 PiB.
type Column []float64

// most is beyond every figure of a run, and sums, products and squares of figures up to it are finite.
const most = 1e30

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
		return fault.Wrap(err, fault.InvalidArgument, "a column is a list of numbers and nulls", "reading a column")
	}
	*c = make(Column, len(values))
	for i, value := range values {
		(*c)[i] = math.NaN()
		if value != nil {
			if math.Abs(*value) > most {
				return fault.New(fault.Corrupt, "the file is damaged: take another copy", "reading a column: %g is out of range", *value)
			}
			(*c)[i] = *value
		}
	}
	return nil
}
