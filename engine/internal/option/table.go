package option

// Table lists the options in the order of the C struct ms_options: new ones go to its end.
var Table = []Option{
	{
		Name: "preset", Label: "Preset", Default: "default", Choices: []string{"fast", "default", "best"}, Since: "0.1", Result: true,
		Help: "How much work to spend: fast, default or best. Options set explicitly override it.",
	},
	{
		Name: "model", Label: "Model", Default: "default", Path: true, Stage: "network", Since: "0.1", Result: true,
		Help: "Model bundle: a built-in name, a path to a .onnx bundle, 'default' (chosen by the library) or 'none' (no network).",
	},
	{
		Name: "initial", Label: "Initial", Default: "affine", Choices: []string{"none", "com", "rigid", "affine"}, Stage: "align", Since: "0.1", Result: true,
		Help: "Initial alignment found before the deformable stages; an initial transform that is given is where rigid and affine start, and stays as it is with none and com.",
	},
	{
		Name: "search", Label: "Search", Default: "auto", Choices: []string{"auto", "on", "off"}, Stage: "search", Since: "0.1", Result: true,
		Help: "Discrete search for large displacements after the initial alignment; auto searches where no network runs and a smooth fit does not find the match.",
	},
	{
		Name: "steps", Label: "Steps", Default: 0, Max: 16, Stage: "network", Unset: true, Since: "0.1", Result: true,
		Help: "Network steps T; by default as many as the model was trained with.",
	},
	{
		Name: "trajectories", Label: "Trajectories", Default: 1, Min: 1, Max: 64, Stage: "network", Since: "0.1", Result: true,
		Help: "Latent trajectories J per step; the best by the label-free reward is kept, the mean always among them.",
	},
	{
		Name: "tau", Label: "Tau", Default: 1.0, Max: 100, Stage: "network", Since: "0.1", Result: true,
		Help: "Temperature of the latent samples when trajectories > 1.",
	},
	{
		Name: "refine", Label: "Refine", Default: -1, Min: -1, Max: 1000, Stage: "refine", Unset: true, Since: "0.1", Result: true,
		Help: "Gradient iterations on the pair at hand at the finest resolution, twice as many at each coarser one; by default as many as the preset says, and none after a network. 0 switches them off.",
	},
	{
		Name: "similarity", Label: "Similarity", Default: "auto", Choices: []string{"auto", "ncc", "mse", "mind"}, Stage: "refine", Since: "0.1", Result: true,
		Help: "Similarity for the refinement; auto takes ncc for one modality and mind for two, by the joint histogram and by how the contrast between the images varies from place to place. Where a curve maps one contrast to the other, auto ends with ncc of the mapped image. With mind the search compares no intensities.",
	},
	{
		Name: "device", Label: "Device", Default: "auto", Choices: []string{"auto", "cpu", "cuda", "tensorrt"}, Prefix: "plugin:", Stage: "network", Since: "0.1", Result: true,
		Help: "Where networks run; auto takes cuda where it is to be had, else the CPU, and says so. plugin:PATH runs them on an ONNX Runtime plugin provider's library.",
	},
	{
		Name: "threads", Label: "Threads", Default: 0, Max: 1024, Unset: true, Since: "0.1", Result: true, // a network's last bit
		Help: "CPU threads; by default one for every core.",
	},
	{
		Name: "seed", Label: "Seed", Default: uint64(0), Since: "0.1", Result: true,
		Help: "Seed of every random draw.",
	},
	{
		Name: "cache", Label: "Cache", Default: "", Path: true, Unset: true, Since: "0.1",
		Help: "Folder that keeps finished results, readable by its owner alone: the same inputs and options are not computed twice; by default nothing is kept.",
	},
	{
		Name: "uncertainty", Label: "Uncertainty", Default: "off", Choices: []string{"off", "on"}, Stage: "uncertainty", Since: "0.2", Result: true,
		Help: "Also give the standard deviation of the displacement at every voxel, mm: over trajectories of the network's policy (16, or as many as the option says) or, where no network runs, from the search's costs of other displacements, whether or not it ran. Takes about as long as that stage, the network's once a trajectory.",
	},
	{
		Name: "smoothness", Label: "Smoothness", Default: "auto", Choices: []string{"auto", "low", "high"}, Number: "mm", Min: 0.1, Max: 100, Since: "0.16", Result: true,
		Help: "Over which distance tissue moves together, in the search and the refinement: low follows fine detail, as between two people; high keeps tissue together, as within one; auto chooses from the images; or a number of mm.",
	},
	{
		Name: "along", Label: "Along", Default: "all", Choices: []string{"all", "i", "j", "k", "ij", "ik", "jk"}, Since: "0.22", Result: true,
		Help: "Axes of the fixed image's voxel grid along which the search and the refinement may move tissue: i is the first axis of the file, j the second, k the third, as in BIDS. One axis suits a distortion along the phase encoding, two a motion within slices. The initial alignment is not held to them.",
	},
	{
		Name: "symmetric", Label: "Symmetric", Default: "off", Choices: []string{"off", "on"}, Since: "0.22", Result: true,
		Help: "Register both ways and take the map in the middle: whichever image is called fixed, one map is the other's inverse, to some hundredths of a voxel. For follow-up studies, which measure change. Takes about twice the time.",
	},
	{
		Name: "landmark_error", Label: "Landmark error", Default: 0.0, Max: 1000, Unset: true, Since: "0.23", Result: true,
		Help: "How exactly the landmarks were marked, mm, so that they steer: the root mean square distance between two who mark the same point, 1 to 2 for clear ones; by default they do not steer. They correct an alignment or a deformation that the images led away from them by more than that.",
	},
}
