package api

import (
	"github.com/asrconfig/asrconfig-go/core/dataset"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// arrowArgs is an audio column in the caller's memory: addresses of Arrow's buffers, which stay
// alive and unchanged until the scan, or the piece, is over. An address of 0 says that there is no
// such buffer.
type arrowArgs struct {
	Batches []arrowBatchArgs `json:"batches"`
	Indices uintptr          `json:"indices"` // of uint64: the rows to take; 0 for all
	Count   int              `json:"count"`   // of indices
	First   int              `json:"first"`   // the number of the first row
	Rate    int              `json:"rate"`    // Hz of lists of samples
}

type arrowBatchArgs struct {
	Rows    int              `json:"rows"`
	Valid   uintptr          `json:"valid"` // bitmap of the struct
	From    int              `json:"from"`  // its first bit
	Bytes   *arrowColumnArgs `json:"bytes"`
	Paths   *arrowColumnArgs `json:"paths"`
	Lengths *arrowColumnArgs `json:"lengths"`
}

type arrowColumnArgs struct {
	Valid   uintptr `json:"valid"`
	Offsets uintptr `json:"offsets"`
	Width   int     `json:"width"` // bits of an offset: 32 or 64
	From    int     `json:"from"`  // of the first row, in bits of valid and in offsets
	Data    uintptr `json:"data"`
	Size    int     `json:"size"` // bytes of data
}

// maxArrowRows keeps sizes far from overflow.
const maxArrowRows = 1 << 40

func (a *arrowArgs) view() (*dataset.Arrow, error) {
	if a == nil {
		return nil, nil
	}
	arrow := dataset.Arrow{First: a.First, Rate: a.Rate}
	if a.Count < 0 || a.Count > maxArrowRows {
		return nil, fault.New(fault.InvalidArgument, "pass the number of indices",
			"the table has %d indices", a.Count)
	}
	var err error
	if a.Indices != 0 {
		if arrow.Indices, err = bytesAt("indices", a.Indices, 8*a.Count); err != nil {
			return nil, err
		}
	}
	for _, b := range a.Batches {
		batch, err := b.view()
		if err != nil {
			return nil, err
		}
		arrow.Batches = append(arrow.Batches, batch)
	}
	return &arrow, nil
}

func (b *arrowBatchArgs) view() (batch dataset.ArrowBatch, err error) {
	batch.Rows = b.Rows
	if batch.Valid, err = bits(b.Valid, b.From, b.Rows); err != nil {
		return batch, err
	}
	for _, c := range []struct {
		args *arrowColumnArgs
		into **dataset.ArrowBinary
	}{{b.Bytes, &batch.Bytes}, {b.Paths, &batch.Paths}, {b.Lengths, &batch.Lengths}} {
		if c.args != nil {
			if *c.into, err = c.args.view(b.Rows); err != nil {
				return batch, err
			}
		}
	}
	return batch, nil
}

func (c *arrowColumnArgs) view(rows int) (*dataset.ArrowBinary, error) {
	column := dataset.ArrowBinary{Width: c.Width, From: c.From}
	var err error
	if column.Valid, err = bits(c.Valid, c.From, rows); err != nil {
		return nil, err
	}
	if c.Width != 32 && c.Width != 64 {
		return nil, fault.New(fault.InvalidArgument, "offsets have 32 or 64 bits", "width is %d",
			c.Width)
	}
	if column.Offsets, err = bytesAt("offsets", c.Offsets, (c.From+rows+1)*c.Width/8); err != nil {
		return nil, err
	}
	if c.Data != 0 || c.Size != 0 {
		column.Data, err = bytesAt("data", c.Data, c.Size)
	}
	return &column, err
}

// bits views a validity bitmap.
func bits(address uintptr, from, rows int) (dataset.ArrowBits, error) {
	if from < 0 || rows < 0 || from > maxArrowRows || rows > maxArrowRows {
		return dataset.ArrowBits{}, fault.New(fault.InvalidArgument,
			"pass the lengths and offsets of live arrays", "a batch of %d rows from %d on", rows,
			from)
	}
	if address == 0 {
		return dataset.ArrowBits{}, nil
	}
	b, err := bytesAt("validity", address, (from+rows+7)/8)
	return dataset.ArrowBits{Bits: b, From: from}, err
}

func bytesAt(name string, address uintptr, size int) ([]byte, error) {
	return bufferArgs{Name: name, Address: address, Size: size}.bytes()
}
