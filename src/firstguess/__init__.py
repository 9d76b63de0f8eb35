"""firstguess: does your untrained classifier already favour one class, and is that a bug?

An untrained classifier often puts nearly all inputs into one class. firstguess predicts this initial guessing bias from
a description of the network, measures it on real models, names the layer or the fault that causes it, and says what to
change and how long it will last in training.

>>> import firstguess as fg
>>> p = fg.predict(fg.mlp(depth=20))  # or "20 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
>>> p.verdict, round(float(p.gamma[-1]), 2), round(p.guesses.expected_max(), 3)
('deeply biased', 18.39, 0.927)

γ, the drift ratio, is the variance between the classes' mean logits divided by the variance of a logit across inputs.
Up to 0.05 a network is called even, below 1 leaning, above 1 biased, from 9.5 on deeply biased.

Your PyTorch model
    diagnose(model, data)         what to do about it, and why: the answer first, then the evidence
    explain_guess(model, data)    what is wrong with a model that predicts one class now, trained or not
    assert_even(model, data)      a check for tests and CI
    measure(model, data)          how untrained copies of it guess, with error bars
    read(model, data)             its description, where it can be read: read(model, data).network
    repair, match_prior           a copy that guesses evenly, or by the frequencies of the classes
    train(model, data=...)        many initializations, really trained: how long the bias lasts
    Watch(model, loader)          the same for your own training loop; firstguess.watch has callbacks for trainers
A description of a network (no weights are drawn, torch is not loaded)
    mlp, residual_mlp, cnn, transformer, mixer    build one; Network.parse(text) and str(net) too
    predict(net)                  random inputs (Inputs, Tokens); predict(net, data=x): your data; width=: your width
    predict_training(net, data=x, lr=...)    how training absorbs the bias, from kernels
    tune, frontier                the least bias for the gradients you need
    phases                        edge_of_chaos, neutrality_line, fixed_point, phase_diagram, causes_bias
Comparing, and sweeping
    compare(prediction, measurement)    differences in standard errors
    grid, study                   a sweep that resumes, on one machine or on Ray
    data                          data.digits(), data.load("mnist:even-odd"): data sets; and what your data add
    figures                       charts that compare several results

Every result prints a page, has .plot() for a chart and .to_dict() for plain data, and shows itself in a notebook; their
classes are in fg.results, exceptions and warnings in fg.errors.
help(fg.diagnose) lists the arguments of one function. In the shell: firstguess --help.
"""

from firstguess._version import __version__  # noqa: F401


def __getattr__(name: str):
    from firstguess._lazy import resolve

    return resolve("firstguess", name)


def __dir__():
    from firstguess._lazy import listed

    return listed("firstguess")
