package main

import "github.com/asrconfig/asrconfig-go/core/timing/kernel"

// shape is a transformer's dimensions, as truths/models.json has them.
type shape struct {
	Family      string `json:"family"`
	Hidden      int64  `json:"hidden"`
	Layers      int64  `json:"layers"`
	Heads       int64  `json:"heads"`
	FeedForward int64  `json:"feed_forward"`
	Vocabulary  int64  `json:"vocabulary"`
}

// iteration is what one pass over a batch computes.
type iteration struct {
	shape
	batch, sequence int64
	*recorder
	answers bool
}

func (i iteration) tokens() int64   { return i.batch * i.sequence }
func (i iteration) states() float64 { return float64(i.tokens() * i.Hidden) }
func (i iteration) wide() float64   { return float64(i.tokens() * i.FeedForward) }
func (i iteration) scores() float64 { return float64(i.batch*i.Heads*i.sequence) * float64(i.sequence) }
func (i iteration) headSize() int64 { return i.Hidden / i.Heads }

// record writes down a model's iteration. answers is NVIDIA's BERT for question answering: two logits a token, gradients that begin at nothing, and products
// over heads by strides, where transformers copies queries, keys and values first.
func record(s shape, batch, sequence int64, dtype kernel.DType, train, answers bool) *recorder {
	item := 4.0
	if dtype == kernel.Float16 {
		item = 2
	}
	i := iteration{s, batch, sequence, &recorder{dtype: dtype, item: item, train: train, accumulate: !answers, times: 1}, answers}
	i.embed()
	i.times = s.Layers
	switch s.Family {
	case "bert":
		i.bertLayer()
	case "gpt2":
		i.gpt2Layer()
	case "opt":
		i.optLayer()
	}
	i.times = 1
	i.head()
	return i.recorder
}

func (i iteration) embed() {
	width, tokens := float64(i.Hidden), float64(i.tokens())
	i.embedding(tokens, width, float64(i.Vocabulary))
	i.embedding(tokens, width, float64(i.sequence))
	i.forward("add embeddings", i.states(), 2, 1, 1)
	if i.Family == "bert" {
		i.embedding(tokens, width, 2)
		i.forward("add embeddings", i.states(), 2, 1, 1)
		i.norm(tokens, width)
	}
	i.dropout(i.states())
	i.keep(i.states(), i.item, 2)
}

// residual adds a layer's input; its gradient is the sum of two.
func (i iteration) residual() {
	i.forward("residual", i.states(), 2, 1, 1)
	i.backward("residual gradient", i.states(), 2, 1, 1)
}

// attention is the two products around a softmax of the scores, with copies of queries, keys and values into rows of heads.
func (i iteration) attention(mask func()) {
	heads := i.batch * i.Heads
	for range 3 {
		if !i.answers {
			i.copied("head rows", i.states())
		}
	}
	i.product("scores", heads, i.sequence, i.sequence, i.headSize())
	mask()
	i.softmax(heads*i.sequence, i.sequence)
	if i.Family != "opt" {
		i.dropout(i.scores())
		i.keep(i.scores(), i.item, 1)
	}
	i.product("context", heads, i.sequence, i.headSize(), i.sequence)
	i.copied("token rows", i.states())
	i.keep(i.scores(), i.item, 1)
	i.keep(i.states(), i.item, 4)
}

// output is what follows a layer's attention: its projection, and the feed-forward block, each with a residual.
func (i iteration) output(activation func()) {
	m, c, f := i.tokens(), i.Hidden, i.FeedForward
	i.linear("attention output", m, c, c, true)
	i.dropout(i.states())
	i.residual()
	i.norm(float64(m), float64(c))
	i.linear("intermediate", m, f, c, true)
	activation()
	i.linear("output", m, c, f, true)
	i.dropout(i.states())
	i.residual()
}

func (i iteration) bertLayer() {
	m, c := i.tokens(), i.Hidden
	for range 3 {
		i.linear("query, key, value", m, c, c, true)
	}
	i.backward("sum of gradients", i.states(), 4, 2, 2)
	i.attention(func() {
		i.forward("scale", i.scores(), 1, 1, 1)
		i.backward("scale gradient", i.scores(), 1, 1, 1)
		i.forward("mask", i.scores(), 1, 1, 1)
	})
	i.output(func() {
		i.forward("gelu", i.wide(), 1, 1, 1)
		i.backward("gelu gradient", i.wide(), 2, 1, 1)
	})
	i.norm(float64(m), float64(c))
	i.keep(i.states(), i.item, 4)
	i.keep(i.wide(), i.item, 2)
}

func (i iteration) gpt2Layer() {
	m, c := i.tokens(), i.Hidden
	i.norm(float64(m), float64(c))
	i.linear("query, key, value", m, 3*c, c, true)
	i.backward("joined gradients", 3*i.states(), 1, 1, 1)
	i.attention(func() {
		i.forward("scale", i.scores(), 1, 1, 1)
		i.backward("scale gradient", i.scores(), 1, 1, 1)
		i.forward("causal mask", i.scores(), 1, 1, 1)
		i.backward("causal mask gradient", i.scores(), 1, 1, 1)
	})
	i.output(func() {
		i.forward("gelu of eight operations", i.wide(), 10, 8, 8)
		i.backward("gelu gradient", i.wide(), 24, 13, 13)
	})
	i.keep(i.states(), i.item, 4)
	i.keep(i.wide(), i.item, 5)
}

func (i iteration) optLayer() {
	m, c := i.tokens(), i.Hidden
	i.norm(float64(m), float64(c))
	for range 3 {
		i.linear("query, key, value", m, c, c, true)
	}
	i.forward("scale", i.states(), 1, 1, 1)
	i.backward("scale gradient, sum of gradients", i.states(), 5, 3, 3)
	i.attention(func() {
		kind := kernel.Elementwise
		if i.batch > 1 { // one mask for all heads of a clip
			kind = kernel.Broadcast
		}
		i.move("mask", kind, kernel.Forward, i.scores(), i.item*(1+1/float64(i.Heads)), i.item, 1)
		i.forward("largest of score and minimum", i.scores(), 1, 1, 1)
		i.move("largest gradient", kernel.Elementwise, kernel.Backward, i.scores(), 18+2, 20, 5) // eq, div, where, lt, masked_fill
		i.keep(i.scores(), i.item, 1)
	})
	i.output(func() {
		i.forward("relu", i.wide(), 1, 1, 1)
		i.backward("relu gradient", i.wide(), 2, 1, 1)
	})
	i.keep(i.states(), i.item, 4)
	i.keep(i.wide(), i.item, 1)
}

// head is what follows the layers: logits over the vocabulary, BERT's for pre-training or classes, or the two of question answering.
func (i iteration) head() {
	m, c := i.tokens(), i.Hidden
	switch {
	case i.answers:
		i.linear("answers", m, 2, c, true)
		return
	case i.Family == "bert":
		i.linear("pooler", i.batch, c, c, true)
		if !i.train {
			return
		}
		i.linear("transform", m, c, c, true)
		i.forward("gelu", i.states(), 1, 1, 1)
		i.backward("gelu gradient", i.states(), 2, 1, 1)
		i.norm(float64(m), float64(c))
	default:
		i.norm(float64(m), float64(c))
	}
	i.linear("vocabulary", m, i.Vocabulary, c, i.Family == "bert")
	logits := float64(m) * float64(i.Vocabulary)
	i.keep(logits, i.item, 1)
	i.backward("loss gradient", logits, 2, 2, 2)
}
