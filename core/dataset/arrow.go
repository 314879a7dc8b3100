package dataset

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// Arrow is a table's audio column in the caller's memory, often of the mapped file itself: nothing
// is copied. The layout is that of the Arrow columnar format,
// arrow.apache.org/docs/format/Columnar.html.
type Arrow struct {
	Batches []ArrowBatch
	Indices []byte // uint64 each: the rows to take, in this order; nil for all
	First   int    // the number of the first row, for names
	Rate    int    // Hz of the arrays that Lengths tells of
}

// ArrowBatch is one record batch. A row has encoded Bytes, or else a path; or the batch has arrays,
// of which only Lengths is looked at.
type ArrowBatch struct {
	Rows    int
	Valid   ArrowBits    // of the struct of bytes and path
	Bytes   *ArrowBinary // nil: the table has none
	Paths   *ArrowBinary
	Lengths *ArrowBinary // a list column, whose Data is not needed
}

// ArrowBits is a validity bitmap; nil bits say that every row is there.
type ArrowBits struct {
	Bits []byte
	From int // the bit of row 0
}

// ArrowBinary is a column of variable length: row i lies between offsets From+i and From+i+1.
type ArrowBinary struct {
	Valid   ArrowBits
	Offsets []byte // little-endian
	Width   int    // bits of an offset: 32 or 64
	From    int
	Data    []byte
}

func (b ArrowBits) at(i int) bool {
	i += b.From
	return b.Bits == nil || b.Bits[i>>3]>>(i&7)&1 != 0
}

func (c *ArrowBinary) span(i int) (from, to int64) {
	i += c.From
	if c.Width == 64 {
		return int64(binary.LittleEndian.Uint64(c.Offsets[8*i:])),
			int64(binary.LittleEndian.Uint64(c.Offsets[8*i+8:]))
	}
	return int64(int32(binary.LittleEndian.Uint32(c.Offsets[4*i:]))),
		int64(int32(binary.LittleEndian.Uint32(c.Offsets[4*i+4:])))
}

// at returns the bytes of row i; there is false of a null, inside of offsets that leave the data.
func (c *ArrowBinary) at(i int) (b []byte, there, inside bool) {
	if c == nil || !c.Valid.at(i) {
		return nil, false, true
	}
	from, to := c.span(i)
	if from < 0 || to < from || to > int64(len(c.Data)) {
		return nil, true, false
	}
	return c.Data[from:to:to], true, true
}

// check refuses columns that are shorter than the batch.
func (b *ArrowBatch) check() bool {
	if b.Rows < 0 || !b.Valid.holds(b.Rows) {
		return false
	}
	for _, c := range []*ArrowBinary{b.Bytes, b.Paths, b.Lengths} {
		if c == nil {
			continue
		}
		if c.Width != 32 && c.Width != 64 || c.From < 0 || !c.Valid.holds(b.Rows) ||
			c.From > len(c.Offsets) || len(c.Offsets)*8/c.Width < c.From+b.Rows+1 {
			return false
		}
	}
	return b.Bytes != nil || b.Paths != nil || b.Lengths != nil
}

func (b ArrowBits) holds(rows int) bool {
	return b.Bits == nil || b.From >= 0 && b.From <= 8*len(b.Bits) && 8*len(b.Bits) >= b.From+rows
}

func (a *Arrow) entries(ctx context.Context) ([]entry, error) {
	starts := []int{0}
	for i := range a.Batches {
		if !a.Batches[i].check() {
			return nil, fault.New(fault.InvalidArgument, "pass whole columns with their offsets",
				"batch %d of the table is shorter than its %d rows", i, a.Batches[i].Rows)
		}
		starts = append(starts, starts[i]+a.Batches[i].Rows)
	}
	rows := starts[len(starts)-1]
	wanted := rows
	if a.Indices != nil {
		wanted = len(a.Indices) / 8
	}
	list := arrowList{entries: make([]entry, wanted), data: make([][]byte, wanted), rate: a.Rate}
	batch := 0
	for i := range wanted {
		if i%namesAtOnce == 0 && ctx.Err() != nil {
			return nil, cancelled(ctx, "listing rows")
		}
		row := i
		if a.Indices != nil {
			index := binary.LittleEndian.Uint64(a.Indices[8*i:])
			if index >= uint64(rows) {
				return nil, fault.New(fault.InvalidArgument,
					"pass the table that the indices belong to",
					"row %d is number %d of a table of %s", i, index, fault.Plural(rows, "row"))
			}
			row = int(index)
		}
		if row < starts[batch] || row >= starts[batch+1] {
			batch, _ = slices.BinarySearch(starts, row+1)
			batch--
		}
		list.set(i, a.First+i, &a.Batches[batch], row-starts[batch])
	}
	return list.entries, nil
}

// arrowList is being filled; it keeps what the entries point to in few pieces.
type arrowList struct {
	entries []entry
	data    [][]byte
	clips   []profile.Clip
	rate    int
}

// set makes entry i, called number, of a row of a batch.
func (l *arrowList) set(i, number int, b *ArrowBatch, row int) {
	name := func() string { return "[" + strconv.Itoa(number) + "]" }
	if b.Lengths != nil {
		l.known(i, l.array(name(), b.Lengths, row))
		return
	}
	data, embedded, inside := b.Bytes.at(row)
	path, named, wholePath := b.Paths.at(row)
	there := b.Valid.at(row)
	switch {
	case !there || !embedded && (!named || len(path) == 0):
		l.known(i, profile.Clip{Path: name(), Error: "has neither a path nor bytes"})
	case !inside || !wholePath:
		l.known(i, profile.Clip{Path: name(),
			Error: "its offsets in the Arrow table leave the table"})
	case embedded:
		l.data[i] = data
		l.entries[i].data = &l.data[i]
		if l.entries[i].path = string(path); len(path) == 0 {
			l.entries[i].path = name()
		}
	default:
		l.entries[i].path = string(path)
	}
}

func (l *arrowList) array(name string, lists *ArrowBinary, row int) profile.Clip {
	from, to := lists.span(row)
	if !lists.Valid.at(row) || to <= from || l.rate <= 0 {
		return profile.Clip{Path: name, Error: "holds no audio"}
	}
	seconds := float64(to-from) / float64(l.rate)
	return profile.Clip{Path: name, DurationS: &seconds, SampleRate: l.rate, Channels: 1,
		Codec: "array", Method: "given", SizeBytes: 4 * (to - from)}
}

// known sets a clip that need not be measured.
func (l *arrowList) known(i int, clip profile.Clip) {
	if len(l.clips) == cap(l.clips) { // the full one stays where entries point to
		l.clips = make([]profile.Clip, 0, 1024)
	}
	l.clips = append(l.clips, clip)
	l.entries[i].clip = &l.clips[len(l.clips)-1]
}
