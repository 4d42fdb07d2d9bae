# The slow part: a chain of eight links that are made one after another and
# destroyed in the opposite order. Each end of a link is an event at which
# Terraform may send a checkpoint, which it does when the last one was 20 seconds
# ago. slow_seconds = 0 leaves the chain out.

resource "terraform_data" "link_1" {
  count = var.slow_seconds > 0 ? 1 : 0
  input = { seconds = var.slow_seconds }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sleep ${self.input.seconds}"
  }
}

resource "terraform_data" "link_2" {
  count = var.slow_seconds > 0 ? 1 : 0
  input = { seconds = var.slow_seconds, after = terraform_data.link_1[0].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sleep ${self.input.seconds}"
  }
}

resource "terraform_data" "link_3" {
  count = var.slow_seconds > 0 ? 1 : 0
  input = { seconds = var.slow_seconds, after = terraform_data.link_2[0].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sleep ${self.input.seconds}"
  }
}

resource "terraform_data" "link_4" {
  count = var.slow_seconds > 0 ? 1 : 0
  input = { seconds = var.slow_seconds, after = terraform_data.link_3[0].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sleep ${self.input.seconds}"
  }
}

resource "terraform_data" "link_5" {
  count = var.slow_seconds > 0 ? 1 : 0
  input = { seconds = var.slow_seconds, after = terraform_data.link_4[0].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sleep ${self.input.seconds}"
  }
}

resource "terraform_data" "link_6" {
  count = var.slow_seconds > 0 ? 1 : 0
  input = { seconds = var.slow_seconds, after = terraform_data.link_5[0].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sleep ${self.input.seconds}"
  }
}

resource "terraform_data" "link_7" {
  count = var.slow_seconds > 0 ? 1 : 0
  input = { seconds = var.slow_seconds, after = terraform_data.link_6[0].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sleep ${self.input.seconds}"
  }
}

resource "terraform_data" "link_8" {
  count = var.slow_seconds > 0 ? 1 : 0
  input = { seconds = var.slow_seconds, after = terraform_data.link_7[0].id }

  provisioner "local-exec" {
    command = "sleep ${self.input.seconds}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "sleep ${self.input.seconds}"
  }
}
