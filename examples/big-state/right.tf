# A slow file of its own, for parallel.sh: it is applied while the other one is.

resource "terraform_data" "right_1" {
  count = var.side_seconds > 0 ? 1 : 0
  input = { seconds = var.side_seconds, beside = module.region["north"].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
}

resource "terraform_data" "right_2" {
  count = var.side_seconds > 0 ? 1 : 0
  input = { seconds = var.side_seconds, after = terraform_data.right_1[0].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
}
