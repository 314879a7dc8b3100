package model

// The torch.nn layers that speech models are made of, each declaring its parameters.

func (m module) linear(name string, in, out int, bias bool) {
	m = m.child(name)
	m.parameter("weight", out, in)
	if bias {
		m.parameter("bias", out)
	}
}

// norm is a LayerNorm, GroupNorm or BatchNorm with weight and bias.
func (m module) norm(name string, size int) {
	m = m.child(name)
	m.parameter("weight", size)
	m.parameter("bias", size)
}

func (m module) embedding(name string, rows, size int) { m.child(name).parameter("weight", rows, size) }

func (m module) conv1d(name string, in, out, kernel, groups int, bias bool) {
	m = m.child(name)
	m.parameter("weight", out, in/groups, kernel)
	if bias {
		m.parameter("bias", out)
	}
}

func (m module) conv2d(name string, in, out, kernel, groups int) {
	m = m.child(name)
	m.parameter("weight", out, in/groups, kernel, kernel)
	m.parameter("bias", out)
}

// projections declares square linear layers with bias, such as the four of an attention.
func (m module) projections(size int, names ...string) {
	for _, name := range names {
		m.linear(name, size, size, true)
	}
}

// feedForward is the two dense layers of the wav2vec2 kind.
func (m module) feedForward(name string, size, inner int) {
	m = m.child(name)
	m.linear("intermediate_dense", size, inner, true)
	m.linear("output_dense", inner, size, true)
}
