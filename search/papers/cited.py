"""The papers that tables and systems are from."""

SVD_RNN = (
    "Zhang, Lei, Dhillon: Stabilizing Gradients for Deep Neural Networks via Efficient SVD "
    "Parameterization (submission to ICLR 2018)"
)
SPECTRAL = (
    "Zhang, Lei, Dhillon: Stabilizing Gradients for Deep Neural Networks via Efficient SVD "
    "Parameterization (2018, arXiv:1803.09327)"
)
PASSTHROUGH = "Miceli Barone: Low-rank passthrough neural networks (2016, arXiv:1603.03116)"
IRNN = (
    "Le, Jaitly, Hinton: A Simple Way to Initialize Recurrent Networks of Rectified Linear Units "
    "(2015, arXiv:1504.00941)"
)
ORNN = (
    "Mhammedi, Hellicar, Rahman, Bailey: Efficient Orthogonal Parametrisation of Recurrent Neural "
    "Networks Using Householder Reflections (ICML 2017, arXiv:1612.00188)"
)
URNN = (
    "Arjovsky, Shah, Bengio: Unitary Evolution Recurrent Neural Networks (ICML 2016, "
    "arXiv:1511.06464)"
)
FULL_URNN = (
    "Wisdom, Powers, Hershey, Le Roux, Atlas: Full-Capacity Unitary Recurrent Neural Networks "
    "(NIPS 2016, arXiv:1611.00035)"
)
FACTORIZED = (
    "Vorontsov, Trabelsi, Kadoury, Pal: On orthogonality and learning recurrent networks with "
    "long term dependencies (ICML 2017, arXiv:1702.00071)"
)
DIZZY = (
    "Dorobantu, Stromhaug, Renteria: DizzyRNN: Reparameterizing Recurrent Neural Networks for "
    "Norm-Preserving Backpropagation (2016, arXiv:1612.04035)"
)
