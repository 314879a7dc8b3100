package memory

import (
	"encoding/binary"
	"math"
	"slices"
)

// fitted counts what a class's forms are like, by birth.
type fitted struct {
	exact, inexact, ambiguous int
	worst                     float64 // residual of an inexact form
}

// fitAll finds the forms of all classes. What a class cannot tell apart, because its batch or its lengths vary too little,
// another one may: such a class is fitted once more with what the others know.
func fitAll(classes []*class, vars variables) error {
	known := familiar{}
	for _, c := range classes {
		if err := c.fit(vars, nil); err != nil {
			return err
		}
		for _, f := range c.forms {
			if !f.inexact && !f.ambiguous {
				known.add(f)
			}
		}
	}
	for _, c := range classes {
		if !slices.ContainsFunc(c.forms, func(f form) bool { return f.ambiguous }) {
			continue
		}
		if err := c.fit(vars, known); err != nil {
			return err
		}
	}
	return nil
}

// fit finds the forms of a class. Births whose sizes are the same everywhere share one, so that a model of many equal
// layers costs as much as one layer.
func (c *class) fit(vars variables, familiar familiar) error {
	shapes, of := c.shapes()
	fitter := &fitter{}
	if c.shaped() {
		var err error
		if fitter, err = newFitter(vars, shapes, familiar); err != nil {
			return err
		}
	}
	c.form, c.forms = make([]int32, len(c.op)), nil
	known := map[string]int32{}
	constants := map[[2]int64]int32{} // by size and columns
	key := make([]byte, 0, 8+8*len(c.members))
	for birth := range c.form {
		columns := c.columns[birth]
		key = binary.LittleEndian.AppendUint64(key[:0], uint64(columns))
		size, same := c.members[0].sizes[birth], true
		for _, m := range c.members {
			same = same && m.sizes[birth] == size
			key = binary.LittleEndian.AppendUint64(key, uint64(m.sizes[birth]))
		}
		if same {
			index, found := constants[[2]int64{size, columns}]
			if !found {
				f := constant(size)
				f.columns = columns
				index = c.addForm(f)
				constants[[2]int64{size, columns}] = index
			}
			c.form[birth] = index
			continue
		}
		index, found := known[string(key)]
		if !found {
			f := c.formOf(birth, fitter, of)
			f.columns = columns
			index = c.addForm(f)
			known[string(key)] = index
		}
		c.form[birth] = index
	}
	return nil
}

func (c *class) addForm(f form) int32 {
	c.forms = append(c.forms, f)
	return int32(len(c.forms) - 1)
}

// formOf fits one birth, whose size varies. A size that differs between two segments of one shape depends on the data.
func (c *class) formOf(birth int, fitter *fitter, of []int) form {
	if !c.shaped() {
		return c.largest(birth)
	}
	sizes := make([]int64, len(fitter.shapes))
	for i := range sizes {
		sizes[i] = -1
	}
	wobbles := false
	for i, m := range c.members {
		size := &sizes[of[i]]
		wobbles = wobbles || *size >= 0 && *size != m.sizes[birth]
		*size = max(*size, m.sizes[birth])
	}
	if wobbles {
		return fitter.closest(sizes)
	}
	found, ambiguous := fitter.fit(sizes)
	found.ambiguous = ambiguous
	return found
}

// largest is the form of a size that varies without a shape to follow.
func (c *class) largest(birth int) form {
	least, most := int64(math.MaxInt64), int64(0)
	for _, m := range c.members {
		least, most = min(least, m.sizes[birth]), max(most, m.sizes[birth])
	}
	return form{terms: []term{{}}, divisor: 1, inexact: true, factors: [maxTerms]float64{float64(most)}, residual: 1 - float64(least)/float64(most)}
}

// shaped tells whether every segment says its shape.
func (c *class) shaped() bool {
	return !slices.ContainsFunc(c.members, func(m member) bool { return !m.shaped })
}

// shapes gives the distinct shapes of the members, and of each member the index of its own.
func (c *class) shapes() (shapes []Shape, of []int) {
	for _, m := range c.members {
		at := slices.Index(shapes, m.shape)
		if at < 0 {
			at = len(shapes)
			shapes = append(shapes, m.shape)
		}
		of = append(of, at)
	}
	return shapes, of
}

func (c *class) fitted() fitted {
	var n fitted
	for _, index := range c.form {
		switch f := &c.forms[index]; {
		case f.inexact:
			n.inexact++
			n.worst = math.Max(n.worst, f.residual)
		case f.ambiguous:
			n.ambiguous++
			fallthrough
		default:
			n.exact++
		}
	}
	return n
}

func (n fitted) plus(other fitted) fitted {
	return fitted{n.exact + other.exact, n.inexact + other.inexact, n.ambiguous + other.ambiguous, math.Max(n.worst, other.worst)}
}
