package api

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOrderOfAttachedDurations(t *testing.T) {
	request := []byte(`{"v":1,"op":"batching.order","args":{"options":{"mode":"random","step_samples":2,"ranks":1,"buckets":1}}}`)
	request = append(request, 0)
	for _, s := range []float64{3, 1, 4, 1.5, 9} {
		request = binary.LittleEndian.AppendUint64(request, math.Float64bits(s))
	}
	text, order, _ := bytes.Cut(Call(request), []byte{0})
	var got struct {
		OK     bool
		Result struct {
			Steps int
			Tail  []int
		}
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.True(t, got.OK, "%s", text)
	assert.Equal(t, 2, got.Result.Steps)
	assert.Equal(t, []int{1}, got.Result.Tail)
	require.Len(t, order, 20)
	numbers := make([]uint32, 5)
	require.NoError(t, binary.Read(bytes.NewReader(order), binary.LittleEndian, numbers))
	slices.Sort(numbers)
	assert.Equal(t, []uint32{0, 1, 2, 3, 4}, numbers)
	assert.Contains(t, string(Call(append(request, 1))), "41 attached bytes are not a whole number of durations")
}
