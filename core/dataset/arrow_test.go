package dataset

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// binaryOf lays values out as Arrow does, behind `from` rows that are not measured; nil is a null.
func binaryOf(width, from int, values ...[]byte) *ArrowBinary {
	c := ArrowBinary{Width: width, From: from, Valid: ArrowBits{Bits: make([]byte, (from+len(values)+7)/8), From: from}}
	c.Data = []byte("before")
	offset := func() {
		if width == 64 {
			c.Offsets = binary.LittleEndian.AppendUint64(c.Offsets, uint64(len(c.Data)))
		} else {
			c.Offsets = binary.LittleEndian.AppendUint32(c.Offsets, uint32(len(c.Data)))
		}
	}
	for range from + 1 {
		offset()
	}
	for i, v := range values {
		if v != nil {
			c.Valid.Bits[(from+i)/8] |= 1 << ((from + i) % 8)
		}
		c.Data = append(c.Data, v...)
		offset()
	}
	return &c
}

func TestArrow(t *testing.T) {
	root := tree(t, map[string][]byte{"file.wav": wavOf(16000)})
	path := []byte(root + "/file.wav")
	for _, width := range []int{32, 64} {
		first := ArrowBatch{Rows: 3, Bytes: binaryOf(width, 5, wavOf(1600), nil, []byte{}), Paths: binaryOf(width, 0, []byte("a.wav"), path, nil)}
		second := ArrowBatch{Rows: 3, Bytes: binaryOf(width, 0, nil, wavOf(3200), wavOf(4800)), Paths: binaryOf(width, 9, []byte{}, nil, []byte("c.wav")),
			Valid: ArrowBits{Bits: []byte{0b011000}, From: 2}}
		second.Valid.Bits[0] = 0b01100 // rows 0 and 1 are there
		table := Arrow{Batches: []ArrowBatch{first, {Rows: 0, Bytes: binaryOf(width, 0)}, second}, First: 10}
		want := []string{"a.wav 0.100", "file.wav 1.000", "[12]: is empty", "[13]: has neither a path nor bytes", "[14] 0.200", "[15]: has neither a path nor bytes"}
		assert.Equal(t, want, told(scan(t, Request{Arrow: &table}), root), width)

		for _, row := range []uint64{4, 0, 1, 4} {
			table.Indices = binary.LittleEndian.AppendUint64(table.Indices, row)
		}
		assert.Equal(t, []string{"[10] 0.200", "a.wav 0.100", "file.wav 1.000", "[13] 0.200"}, told(scan(t, Request{Arrow: &table}), root), width)
		c := NewCollection(Options{})
		require.NoError(t, c.Add(context.Background(), &Piece{Arrow: &table}, new(Progress)))
		require.NoError(t, c.Add(context.Background(), &Piece{Arrow: &Arrow{Batches: []ArrowBatch{first}}}, new(Progress)))
		result, err := c.Finish(context.Background(), Ending{Source: "pieces"})
		require.NoError(t, err)
		assert.Equal(t, 7, result.Clips.Len())
		two := 2
		assert.Equal(t, 4, scan(t, Request{Arrow: &table, SampleSize: &two}).Profile.SampleCount)
	}
}

func TestArrowOfArrays(t *testing.T) {
	lists := binaryOf(32, 2, make([]byte, 1600), nil, []byte{}, make([]byte, 800))
	lists.Data = nil // samples are not looked at
	table := Arrow{Batches: []ArrowBatch{{Rows: 4, Lengths: lists}}, Rate: 16000}
	result := scan(t, Request{Arrow: &table})
	assert.Equal(t, []string{"[0] 0.100 given", "[1]: holds no audio", "[2]: holds no audio", "[3] 0.050 given"}, told(result, ""))
	assert.EqualValues(t, 6400, result.Clips.At(0).SizeBytes)
}

func TestArrowThatLeavesItsMemory(t *testing.T) {
	good := binaryOf(32, 0, wavOf(100), wavOf(100))
	broken := *good
	broken.Offsets = append([]byte(nil), good.Offsets...)
	binary.LittleEndian.PutUint32(broken.Offsets[8:], math.MaxUint32)
	result := scan(t, Request{Arrow: &Arrow{Batches: []ArrowBatch{{Rows: 2, Bytes: &broken}}}})
	assert.Equal(t, []string{"[0] 0.006", "[1]: its offsets in the Arrow table leave the table"}, told(result, ""))
	short := *good
	short.Offsets = good.Offsets[:11]
	odd := *good
	odd.Width = 16
	for name, a := range map[string]Arrow{
		"offsets":  {Batches: []ArrowBatch{{Rows: 2, Bytes: &short}}},
		"width":    {Batches: []ArrowBatch{{Rows: 2, Bytes: &odd}}},
		"rows":     {Batches: []ArrowBatch{{Rows: 3, Bytes: good}}},
		"negative": {Batches: []ArrowBatch{{Rows: -1, Bytes: good}}},
		"validity": {Batches: []ArrowBatch{{Rows: 2, Bytes: good, Valid: ArrowBits{Bits: []byte{3}, From: 7}}}},
		"nothing":  {Batches: []ArrowBatch{{Rows: 2}}},
		"index":    {Batches: []ArrowBatch{{Rows: 2, Bytes: good}}, Indices: []byte{2, 0, 0, 0, 0, 0, 0, 0}},
	} {
		_, err := Scan(context.Background(), Request{Arrow: &a}, new(Progress))
		require.Error(t, err, name)
		assert.Equal(t, fault.InvalidArgument, fault.From(err).Code, name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Scan(ctx, Request{Arrow: &Arrow{Batches: []ArrowBatch{{Rows: 2, Bytes: good}}}}, new(Progress))
	isFault(t, err, fault.Cancelled)
}

func FuzzArrow(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x05\x00\x00\x00\x04\x00\x00\x00"), []byte("RIFF"), []byte{1}, 2, 0, 32, uint64(1))
	f.Fuzz(func(t *testing.T, offsets, data, valid []byte, rows, from, width int, index uint64) {
		column := &ArrowBinary{Valid: ArrowBits{Bits: valid, From: from}, Offsets: offsets, Width: width, From: from, Data: data}
		table := Arrow{Batches: []ArrowBatch{{Rows: rows, Valid: ArrowBits{Bits: valid, From: from}, Bytes: column, Paths: column}}, Indices: binary.LittleEndian.AppendUint64(nil, index)}
		entries, err := table.entries(context.Background())
		if err != nil {
			assert.Equal(t, fault.InvalidArgument, fault.From(err).Code)
			return
		}
		require.Len(t, entries, 1)
		measureOne(entries[0])
	})
}
